// Every table sorts by the heading that is selected; long ones have a filter and show their first rows.
const LONG = 12, FIRST_ROWS = 10;

// Makes buttons of the headings.
function makeHeads(table, act) {
  for (const head of table.tHead.rows[0].cells) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    button.addEventListener("click", () => act(head));
    head.replaceChildren(button);
  }
}

// The number that a cell begins with, in the smallest unit; NaN without one.
function numberOf(text) {
  const units = { ns: 1, "µs": 1e3, ms: 1e6, s: 1e9, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15 };
  const found = /^([-+]?[\d.,]+)\s*(ns|µs|ms|s|[kMGTP])?/.exec(text);
  return found ? parseFloat(found[1].replace(/,/g, "")) * (units[found[2]] ?? 1) : NaN;
}

class SortedTable {
  constructor(table) {
    this.table = table;
    this.body = table.tBodies[0];
    makeHeads(table, (head) => this.sort(head));
    // A row with the rows that explain it.
    this.rows = [];
    for (const row of this.body.rows) if (row.classList.contains("note") && this.rows.length) this.rows.at(-1).push(row); else this.rows.push([row]);
    if (this.rows.length <= LONG) return;
    const filter = Object.assign(document.createElement("input"), { type: "search", className: "filter", placeholder: `Filter ${this.rows.length} rows`, ariaLabel: "Filter the rows of this table", autocomplete: "off" });
    filter.addEventListener("input", () => this.fold());
    this.filter = filter;
    this.more = Object.assign(document.createElement("button"), { type: "button", className: "more", textContent: `Show all ${this.rows.length}` });
    this.more.addEventListener("click", () => { this.all = true; this.fold(); });
    table.parentElement.before(filter);
    table.parentElement.after(this.more);
    this.fold();
  }

  // Hides the rows that the filter leaves out; without words, those after the first ones.
  fold() {
    if (!this.filter) return;
    const words = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    this.more.hidden = this.all || words.length > 0;
    this.rows.forEach((group, i) => {
      const text = group[0].textContent.toLowerCase(), hidden = !words.every((word) => text.includes(word)) || !this.more.hidden && i >= FIRST_ROWS;
      for (const row of group) row.hidden = hidden;
    });
  }

  // Numbers begin with the largest, text with A; missing values are last.
  sort(head) {
    const at = head.cellIndex, numeric = head.classList.contains("n"), before = head.getAttribute("aria-sort");
    const down = before ? before === "ascending" : numeric, missing = (v) => v === "" || v === "–" || Number.isNaN(v);
    for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const value = ([row]) => { const text = row.cells[at].textContent.trim(); return numeric ? numberOf(text) : text.toLowerCase(); };
    const rows = this.rows.map((group) => ({ group, value: value(group) }));
    rows.sort((a, b) => {
      if (missing(a.value) || missing(b.value)) return missing(a.value) - missing(b.value);
      return (a.value < b.value ? -1 : a.value > b.value ? 1 : 0) * (down ? -1 : 1);
    });
    this.rows = rows.map((entry) => entry.group);
    this.body.replaceChildren(...this.rows.flat());
    this.fold();
  }
}

function sortTables() {
  for (const table of document.querySelectorAll("main .scroll > table")) {
    if (table.id !== "kernel-table" && table.tHead && table.tBodies[0].rows.length > 1) new SortedTable(table);
  }
}
