// Details of the selected item: name, shape, launch, ranges, operator and counters.
const CAUSES = {
  "idle-launch": "the CPU had not launched the next operation yet", "idle-sync": "the launching thread was waiting for the device",
  "idle-copy": "the launching thread was inside a copy call", "idle-other": "launched and not started, or the launch is not known",
};

class Detail {
  constructor(timeline) {
    this.timeline = timeline;
    this.data = timeline.data;
    this.box = document.getElementById("timeline-detail");
    this.item = document.getElementById("timeline-item");
    this.full = new Map();
    for (const name of kernelData.names) if (name.timeline !== null) this.full.set(name.timeline, name);
  }

  // The name as the tool gave it, where the page has it.
  fullName(name) {
    const known = this.full.get(name);
    return known && known.full ? known.full : "";
  }

  kind({ lane, i }) {
    const name = lane.name[i];
    return lane.text || name < 0 ? lane.group : this.data.meta.classes[this.data.meta.names[name][1]];
  }

  // A few lines on an item, as the tip shows them.
  lines(item) {
    const { lane, i } = item, { meta } = this.data;
    const lines = [this.timeline.painter.nameOf(lane, i)];
    if (lane.group === "steps") lines[0] = `step ${lane.text[i]} of ${meta.stages[lane.items[i].stage].name}`;
    const place = lane.section >= 0 && lane.group !== "streams" && lane.group !== "idle" ? meta.sections[lane.section].label : lane.section >= 0 && lane.group === "streams" ? lane.label : "";
    const kind = this.kind(item).replace("idle-", "idle: ");
    lines.push((place ? place + " · " : "") + kind + " · " + formatTime(lane.length[i]) + " from " + formatMoment(lane.start[i]));
    const merged = this.merged(item);
    if (merged) lines.push(merged);
    if (lane.group === "idle") {
      if (CAUSES[this.kind(item)]) lines.push(CAUSES[this.kind(item)]);
      const { before, next } = this.neighbours(item);
      lines.push(`after ${before}`, `before ${next}`);
    }
    const call = this.timeline.callOf(lane, i);
    if (call) lines.push("launched " + formatTime(lane.start[i] - call.lane.start[call.i]) + " before it began, by " + this.timeline.painter.nameOf(call.lane, call.i));
    return lines;
  }

  // What a block of several items has.
  merged({ lane, i }) {
    if (!lane.count || lane.count[i] < 2) return "";
    const busy = lane.taken[i + 1] - lane.taken[i];
    return lane.group === "counters" ? `${(100 * busy / lane.length[i]).toFixed(1)} % of the peak` : `${formatCount(lane.count[i])} items, ${formatTime(busy)} occupied`;
  }

  // The GPU operations on both sides of a gap: the last that ended, and the first that begins.
  neighbours({ lane, i }) {
    const from = lane.start[i], to = from + lane.length[i], { painter } = this.timeline;
    let last = null, first = null, ended = -1, begins = Infinity;
    for (const other of this.data.lanes) {
      if (other.group !== "streams" || other.section !== lane.section) continue;
      let k = after(other.start, from, 0, other.n) - 1;
      const reach = k >= 0 ? other.reach[k] : -1, next = after(other.start, to - 1, 0, other.n);
      while (k > 0 && other.start[k] + other.length[k] < reach) k -= 1;
      if (reach > ended) { ended = reach; last = [other, k]; }
      if (next < other.n && other.start[next] < begins) { begins = other.start[next]; first = [other, next]; }
    }
    return { before: last ? painter.nameOf(...last) : "the start", next: first ? painter.nameOf(...first) : "the end" };
  }

  // Names of the items of a group around a moment on a thread, the outermost first.
  around(group, section, moment) {
    const found = [];
    for (const lane of this.data.lanes) {
      if (lane.group !== group || lane.section !== section) continue;
      for (let i = after(lane.start, moment, 0, lane.n) - 1; i >= 0 && lane.reach[i] >= moment; i--) {
        if (lane.start[i] + lane.length[i] < moment) continue;
        if (!lane.count || lane.count[i] === 1) found.push({ lane, i });
        break;
      }
    }
    return found.map(({ lane, i }) => this.timeline.painter.nameOf(lane, i));
  }

  // Facts as pairs of a name and a text or a button.
  facts(item) {
    const { lane, i } = item, { meta } = this.data, facts = [["Duration", formatDuration(lane.length[i])], ["Start", formatMoment(lane.start[i])]];
    const add = (name, value) => { if (value) facts.push([name, value]); };
    if (lane.section >= 0) add("Lane", lane.group === "streams" ? lane.label : meta.sections[lane.section].label);
    add("Kind", this.kind(item).replace("idle-", "idle: "));
    add(lane.group === "counters" ? "Value" : "Merged", this.merged(item));
    const shape = lane.shape ? meta.shapes[lane.shape[i]] : null;
    if (shape && lane.shape[i] > 0) {
      add("Grid", shape.slice(0, 3).join(" × "));
      add("Block", shape.slice(3, 6).join(" × "));
      if (shape[6]) add("Registers", `${shape[6]} per thread`);
      add("Shared memory", `${formatBytes(shape[7])} static, ${formatBytes(shape[8])} dynamic`);
    }
    const bytes = lane.bytes ? lane.bytes.get(i) : undefined;
    if (bytes) add("Size", `${formatBytes(bytes)}, ${formatBytes(bytes / Math.max(1, lane.length[i]) * 1e9)}/s`);
    if (lane.group === "streams") this.launch(item, add);
    if (lane.group === "idle") {
      const { before, next } = this.neighbours(item);
      add("Cause", CAUSES[this.kind(item)]);
      add("After", before);
      add("Before", next);
    }
    if (lane.group === "calls") {
      this.context(lane.section, lane.start[i], add);
      const launched = this.timeline.partners(item);
      if (launched.length) add("Launched", launched.slice(0, 4).map((other) => this.timeline.painter.nameOf(other.lane, other.i)).join(", ") + (launched.length > 4 ? ", …" : ""));
    }
    if (lane.group === "steps") add("Link", location.href.split("#")[0].split("/").pop() + `#step=${encodeURIComponent(meta.stages[lane.items[i].stage].name)}.${lane.items[i].step + 1}`);
    return facts;
  }

  context(section, moment, add) {
    add("Ranges", this.around("ranges", section, moment).join(" › "));
    add("Operators", this.around("operators", section, moment).join(" › "));
  }

  launch(item, add) {
    const { lane, i } = item, call = this.timeline.callOf(lane, i);
    if (!call) add("Launch", lane.count && lane.count[i] > 1 ? "" : "not recorded");
    else {
      const start = call.lane.start[call.i];
      add("Launch", `${this.timeline.painter.nameOf(call.lane, call.i)}, ${formatTime(lane.start[i] - start)} before, took ${formatTime(call.lane.length[call.i])}, ${call.lane.label}`);
      this.context(call.lane.section, start, add);
    }
    const known = this.full.get(lane.name[i]);
    if (!known) return;
    const rows = kernelData.counters.filter((row) => kernelData.names[row.name] === known);
    const shape = this.data.meta.shapes[lane.shape[i]].slice(0, 6).join();
    const row = rows.find((row) => row.shape === shape);
    if (row) add("Counters", row.text);
    else if (kernelData.counters.length) add("Counters", rows.length ? "measured for other launch shapes only" : "not measured for this kernel");
  }

  show(item) {
    this.item.textContent = item ? this.lines(item).join("\n") : "Nothing selected.";
    this.box.hidden = !item;
    if (!item) return;
    const full = this.fullName(item.lane.name[item.i]), list = element("dl", null, { className: "evidence" });
    for (const [name, value] of this.facts(item)) list.append(element("div", null, {}, element("dt", name), element("dd", value)));
    const totals = element("button", "Totals of this span", { type: "button" });
    totals.addEventListener("click", () => this.timeline.selectShown());
    this.box.replaceChildren(...(full ? [element("p", full, { className: "full-name" })] : []), list, totals);
  }
}
