// Sorts the tables of kernels by the heading that is selected.
(() => {
"use strict";
for (const table of document.querySelectorAll("h3 ~ .scroll table:not(.delta-table)")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  heads.forEach((head, at) => {
    const numeric = head.classList.contains("n"), button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      // Numbers begin with the largest, text with A.
      const down = head.getAttribute("aria-sort") ? head.getAttribute("aria-sort") === "ascending" : numeric;
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const value = (row) => {
        const text = row.cells[at].textContent;
        return numeric ? parseFloat(text.replace(/,/g, "")) : text.toLowerCase();
      };
      const missing = (v) => v === "" || Number.isNaN(v);
      const rows = [...body.rows].map((row) => ({ row, value: value(row) }));
      rows.sort((a, b) => {
        if (missing(a.value) || missing(b.value)) return missing(a.value) - missing(b.value);
        return (a.value < b.value ? -1 : a.value > b.value ? 1 : 0) * (down ? -1 : 1);
      });
      body.replaceChildren(...rows.map((entry) => entry.row));
    });
  });
}
document.documentElement.dataset.ready = "yes";
})();
