// The kernel table: sorted, searched and filtered. Names are only ever set as text.
const NONE = "–", MANY = innerWidth > 640 ? 40 : 12;

class KernelTable {
  constructor(table, data, timeline) {
    this.table = table;
    this.body = table.tBodies[0];
    this.data = data;
    this.timeline = timeline;
    this.key = "total";
    this.down = true;
    this.all = false;
    this.search = document.getElementById("kernel-search");
    this.stage = document.getElementById("kernel-stage");
    this.family = document.getElementById("kernel-family");
    data.scopes.forEach((name, i) => this.stage.append(new Option(name, i)));
    this.family.append(new Option("all", ""));
    data.families.forEach((name, i) => this.family.append(new Option(name, i)));
    document.getElementById("kernel-tools").hidden = false;
    document.getElementById("kernel-tools").addEventListener("submit", (event) => event.preventDefault());
    const again = () => { this.all = false; this.fill(); };
    this.search.addEventListener("input", again);
    this.stage.addEventListener("change", again);
    this.family.addEventListener("change", again);
    makeHeads(table, (head) => this.sort(head.dataset.key));
    this.fill();
  }

  sort(key) {
    // Text sorts ascending first, numbers descending.
    this.down = key === this.key ? !this.down : !["name", "family", "stage", "device", "bound"].includes(key);
    this.key = key;
    for (const head of this.table.tHead.rows[0].cells) {
      if (head.dataset.key === key) head.setAttribute("aria-sort", this.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    }
    this.fill();
  }

  value(row, key) {
    const name = this.data.names[row[0]];
    switch (key) {
      case "name": return name.short.toLowerCase();
      case "family": return this.data.families[name.family];
      case "stage": return this.stagesOf(name);
      case "device": return row[1];
      case "total": case "share": return row[2];
      case "calls": return row[3];
      case "mean": return row[4];
      case "median": return row[5];
      case "min": return row[6];
      case "max": return row[7];
      case "roof": case "above": return row[10] === null ? null : parseFloat(row[10][key === "roof" ? 0 : 1].replaceAll(",", ""));
      default: return row[8];
    }
  }

  stagesOf(name) { return name.stages.map((s) => this.data.scopes[s + 1]).join(", "); }

  chosen() {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const family = this.family.value === "" ? -1 : Number(this.family.value);
    const fits = (row) => {
      const name = this.data.names[row[0]];
      if (family >= 0 && name.family !== family) return false;
      const text = (name.short + " " + (name.full || "")).toLowerCase();
      return words.every((word) => text.includes(word));
    };
    const rows = this.data.rows[Number(this.stage.value)].filter(fits);
    const sign = this.down ? -1 : 1;
    return rows.map((row) => ({ row, value: this.value(row, this.key) })).sort((a, b) => {
      // Missing values sort last in both directions.
      if (a.value === null || b.value === null) return (a.value === null) - (b.value === null) || b.row[2] - a.row[2];
      if (a.value < b.value) return -sign;
      if (a.value > b.value) return sign;
      return b.row[2] - a.row[2];
    }).map((entry) => entry.row);
  }

  fill() {
    const rows = this.chosen(), shown = this.all ? rows : rows.slice(0, MANY);
    this.body.replaceChildren(...shown.map((row) => this.line(row)));
    const total = rows.reduce((sum, row) => sum + row[2], 0), calls = rows.reduce((sum, row) => sum + row[3], 0);
    const scope = Number(this.stage.value), all = this.data.totals[scope];
    document.getElementById("kernel-count").textContent =
      `${formatCount(rows.length)} kernels, ${formatCount(calls)} launches, ${grouped(total / 1e6, 3)} ms` + (all ? `, ${(100 * total / all).toFixed(1)} % of the kernel time` : "");
    const more = document.getElementById("kernel-more");
    more.replaceChildren();
    if (shown.length < rows.length) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = `Show all ${formatCount(rows.length)}`;
      button.addEventListener("click", () => { this.all = true; this.fill(); });
      more.append(`The first ${formatCount(shown.length)} are shown. `, button);
    }
    if (this.data.left_out[scope]) more.append(` ${formatCount(this.data.left_out[scope])} more kernels are in metrics.json.`);
  }

  line(row) {
    const name = this.data.names[row[0]], line = document.createElement("tr");
    const cell = (text, number) => {
      const td = document.createElement("td");
      td.textContent = text;
      if (number) td.className = "n";
      line.append(td);
      return td;
    };
    const us = (ns) => (ns === null ? NONE : grouped(ns / 1e3, 2));
    const head = document.createElement("th"), patch = document.createElement("i");
    head.scope = "row";
    patch.className = "f-" + name.color;
    const label = document.createElement("button");
    label.type = "button";
    label.textContent = name.short;
    label.title = "Full name, shapes, durations, stages and counters";
    label.setAttribute("aria-expanded", "false");
    label.addEventListener("click", () => this.open(line, label, row));
    head.append(patch, label);
    line.append(head);
    const all = this.data.totals[Number(this.stage.value)];
    cell(this.data.families[name.family]);
    cell(this.stagesOf(name) || NONE);
    if (this.data.devices) cell(row[1] === null ? NONE : row[1]);
    cell(grouped(row[2] / 1e6, 3), true);
    cell(all ? (100 * row[2] / all).toFixed(1) : NONE, true);
    cell(formatCount(row[3]), true);
    for (const ns of row.slice(4, 8)) cell(us(ns), true);
    const bound = cell(row[8] === null ? NONE : row[8]);
    bound.title = row[9] === null ? "not measured" : row[9];
    if (this.data.roof) for (const text of row[10] || [NONE, NONE]) cell(text, true);
    return line;
  }

  // Shows a drawer under a row.
  open(line, label, row) {
    const opened = line.nextSibling;
    if (opened && opened.classList.contains("full")) {
      opened.remove();
      label.setAttribute("aria-expanded", "false");
      return;
    }
    label.setAttribute("aria-expanded", "true");
    const scope = Number(this.stage.value), cell = element("td", null, { colSpan: line.cells.length }, ...drawer(this.data, row, scope, this.timeline));
    line.after(element("tr", null, { className: "full" }, cell));
  }
}
