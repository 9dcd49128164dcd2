// Totals of a selected span of time: by kernel, by family and by cause of idle time.
const TOTAL_ROWS = 12;

class SpanTotals {
  constructor(timeline) {
    this.timeline = timeline;
    this.box = document.getElementById("timeline-span");
  }

  // Adds up the part of each item inside the span. A block of several items gives its occupied share.
  sums(from, to, group) {
    const byName = new Map();
    for (const lane of this.timeline.data.lanes) {
      if (lane.group !== group) continue;
      const end = after(lane.start, to, 0, lane.n);
      for (let i = after(lane.reach, from, 0, end); i < end; i++) {
        const inside = Math.min(to, lane.start[i] + lane.length[i]) - Math.max(from, lane.start[i]);
        if (inside < 0 || inside === 0 && lane.length[i] > 0) continue;
        const share = lane.length[i] > 0 ? inside / lane.length[i] : 1;
        const sum = byName.get(lane.name[i]) || { name: lane.name[i], ns: 0, count: 0 };
        sum.ns += (lane.taken[i + 1] - lane.taken[i]) * share;
        sum.count += lane.count ? Math.round(lane.count[i] * share) : 1;
        byName.set(lane.name[i], sum);
      }
    }
    return [...byName.values()].sort((a, b) => b.ns - a.ns);
  }

  show(span) {
    this.box.hidden = !span;
    if (!span) return this.box.replaceChildren();
    const [from, to] = span, { names, classes, sections } = this.timeline.data.meta;
    const work = this.sums(from, to, "streams"), idle = this.sums(from, to, "idle");
    const gpus = Math.max(1, sections.filter((section) => section.kind === "gpu").length), length = to - from;
    const families = new Map();
    for (const sum of work) {
      const family = sum.name < 0 ? "merged" : classes[names[sum.name][1]], known = families.get(family) || { name: family, ns: 0, count: 0 };
      known.ns += sum.ns;
      known.count += sum.count;
      families.set(family, known);
    }
    const all = work.reduce((sum, row) => sum + row.ns, 0), ops = work.reduce((sum, row) => sum + row.count, 0);
    const label = (row) => (row.name < 0 ? "merged, not named in this page" : names[row.name][0]);
    const resting = idle.reduce((sum, row) => sum + row.ns, 0);
    const head = element("p", null, { className: "span-head" },
      element("b", formatTime(length)), ` selected, from ${formatMoment(from)}: ${formatCount(ops)} GPU operations, ${formatTime(all)} in sum; `
      + `${gpus > 1 ? `${gpus} GPUs` : "the GPU"} idle for ${formatTime(resting)} (${formatPercent(resting, length * gpus)}${gpus > 1 ? " on average" : ""}). `);
    const button = (text, act) => {
      const made = element("button", text, { type: "button" });
      made.addEventListener("click", act);
      return made;
    };
    head.append(button("Zoom to it", () => this.timeline.show(from, to)), " ", button("Clear", () => this.timeline.select()));
    const byKernel = work.map((row) => [label(row), row.ns, row.count]);
    const tables = element("div", null, { className: "columns" },
      this.table("Kernel", byKernel, all), this.table("Family", [...families.values()].map((row) => [row.name, row.ns, row.count]), all),
      this.table("Idle", idle.map((row) => [label(row), row.ns, row.count]), length * gpus, "% of span"));
    this.box.replaceChildren(head, tables);
  }

  table(title, rows, whole, share = "% of work") {
    rows.sort((a, b) => b[1] - a[1]);
    const cell = (text, tag = "td") => element(tag, text, { className: "n" });
    const head = element("tr", null, {}, element("th", title, { scope: "col" }), cell("Time", "th"), cell(share, "th"), cell("Count", "th"));
    const body = element("tbody");
    for (const [name, ns, count] of rows.slice(0, TOTAL_ROWS)) {
      body.append(element("tr", null, {}, element("th", name, { scope: "row" }), cell(formatTime(ns)), cell(formatPercent(ns, whole)), cell(formatCount(count))));
    }
    const more = rows.slice(TOTAL_ROWS);
    if (more.length) {
      const sum = (at) => more.reduce((total, row) => total + row[at], 0);
      body.append(element("tr", null, {}, element("th", `${formatCount(more.length)} more`, { scope: "row" }), cell(formatTime(sum(1))), cell(formatPercent(sum(1), whole)), cell(formatCount(sum(2)))));
    }
    if (!rows.length) body.append(element("tr", null, {}, element("td", "none", { colSpan: 4 })));
    return element("div", null, { className: "scroll" }, element("table", null, {}, element("thead", null, {}, head), body));
  }
}
