// Arranges the lanes in sections that fold: the stages, then each GPU, then each thread.
const HEIGHTS = { stages: 20, steps: 17, idle: 20, streams: 26, counters: 26, copies: 13, graphs: 15, calls: 18, stacks: 16, ranges: 16, operators: 14 };
const ORDER = Object.keys(HEIGHTS);
const FOLD = 24, GAP = 3, OPEN_THREADS = 2;

// Makes a lane of items {start, length, name, text, classes, origin, stage, step}, which need not be in order.
function makeLane(group, label, section, items) {
  items.sort((a, b) => a.start - b.start);
  const lane = {
    group, label, section, items,
    start: Float64Array.from(items, (item) => item.start), length: Float64Array.from(items, (item) => item.length),
    name: Int32Array.from(items, (item) => item.name ?? -1),
  };
  if (items.some((item) => item.text !== undefined)) {
    lane.text = items.map((item) => item.text);
    lane.classes = items.map((item) => item.color);
  }
  return finishLane(lane);
}

// Adds lanes that follow from the others: stages and steps, the copies of a GPU, and the work of each graph launch.
function addDerivedLanes(data) {
  const { meta, lanes } = data, classOf = (name) => meta.classes.indexOf(name);
  const stages = [], steps = [];
  meta.stages.forEach((stage, s) => {
    const color = meta.classes.length + s % STAGE_COLORS;
    stage.at.forEach(([start, length], i) => stages.push({ start, length, stage: s, instance: i, color, text: stage.name }));
    stage.steps.forEach(([start, length], i) => steps.push({ start, length, stage: s, step: i, color: classOf("range"), text: String(i + 1) }));
  });
  const made = [];
  if (stages.length) made.push(makeLane("stages", "stages", -1, stages));
  if (steps.length) made.push(makeLane("steps", "steps", -1, steps));
  const transfers = new Set([classOf("memcpy"), classOf("memset")]), graph = classOf("graph");
  const classes = meta.names.map((name) => name[1]);
  const calls = lanes.filter((lane) => lane.group === "calls");
  const graphCalls = new Map();
  for (const lane of calls) for (let i = 0; i < lane.n; i++) if (lane.name[i] >= 0 && classes[lane.name[i]] === graph) graphCalls.set(lane.first + i, lane.name[i]);
  meta.sections.forEach((section, at) => {
    const copies = [], launches = new Map();
    for (const lane of lanes) {
      if (lane.group !== "streams" || lane.section !== at) continue;
      for (let i = 0; i < lane.n; i++) {
        const name = lane.name[i], link = lane.link[i], kind = name < 0 ? -1 : classes[name];
        const span = () => ({ start: lane.start[i], length: lane.length[i], name, origin: { lane, i } });
        if (transfers.has(kind)) copies.push(span());
        else if (kind === graph) launches.set(`${lane.label} ${i}`, { ...span(), color: graph, text: "graph" });
        if (!graphCalls.size || link < 0 || !graphCalls.has(link)) continue;
        const known = launches.get(link), end = lane.start[i] + lane.length[i];
        if (!known) launches.set(link, { ...span(), name: graphCalls.get(link), color: graph, ops: 1 });
        else { known.length = Math.max(known.start + known.length, end) - known.start; known.ops += 1; }
      }
    }
    if (copies.length) made.push(makeLane("copies", "copies", at, copies));
    for (const item of launches.values()) if (item.ops) item.text = `graph of ${formatCount(item.ops)}`;
    if (launches.size) made.push(makeLane("graphs", "graph launches", at, [...launches.values()]));
  });
  data.lanes = made.concat(lanes);
}

class Sections {
  constructor(data, box, changed) {
    this.changed = changed;
    const all = [{ kind: "stages", label: "Stages" }, ...data.meta.sections];
    this.list = all.map((section, i) => {
      const lanes = data.lanes.filter((lane) => lane.section === i - 1);
      const groups = ORDER.filter((group) => lanes.some((lane) => lane.group === group))
        .map((group) => ({ group, shown: true, lanes: lanes.filter((lane) => lane.group === group) }));
      return { ...section, groups, open: true, work: lanes.reduce((sum, lane) => sum + (lane.group === "calls" ? lane.n : 0), 0) };
    }).filter((section) => section.groups.length);
    const rank = { stages: 0, gpu: 1, thread: 2 };
    this.list.sort((a, b) => rank[a.kind] - rank[b.kind] || (a.kind === "thread" ? b.work - a.work : 0));
    const threads = this.list.filter((section) => section.kind === "thread");
    threads.slice(OPEN_THREADS).forEach((section) => { section.open = false; });
    for (const section of this.list) this.title(section, box);
  }

  // A title with a button that folds the section, and one for each kind of lane.
  title(section, box) {
    const toggle = element("button", null, { type: "button", className: "toggle" });
    toggle.addEventListener("click", () => { section.open = !section.open; this.changed(); });
    section.row = element("div", null, { className: "fold" }, toggle);
    section.toggle = toggle;
    section.chips = section.groups.length < 2 ? [] : section.groups.map((group) => {
      const chip = element("button", group.group, { type: "button", className: "chip", title: `Show or hide ${group.group}` });
      chip.addEventListener("click", () => { group.shown = !group.shown; section.open = true; this.changed(); });
      section.row.append(chip);
      return chip;
    });
    box.append(section.row);
  }

  // Unfolds the section of a lane.
  reveal(lane) {
    for (const section of this.list) {
      for (const group of section.groups) {
        if (!group.lanes.includes(lane) || (section.open && group.shown)) continue;
        section.open = group.shown = true;
        this.changed();
      }
    }
  }

  // Gives each lane its place; lanes become lower where they do not fit the room, and higher where they would not fill the least of it.
  place(room, least) {
    const rows = () => this.list.flatMap((section) => section.open ? section.groups.filter((group) => group.shown) : []);
    const height = (group) => HEIGHTS[group.group] * (group.group === "idle" ? 1 : group.lanes.length);
    const gaps = rows().reduce((sum, group) => sum + GAP * (group.group === "idle" ? 1 : group.lanes.length), 0) + this.list.length * FOLD;
    const natural = rows().reduce((sum, group) => sum + height(group), 0);
    const fits = (height) => (natural > 0 ? (height - gaps) / natural : 1);
    const scale = Math.max(0.55, Math.min(1, fits(room)), Math.min(2.2, fits(least)));
    let y = 0;
    for (const section of this.list) {
      section.top = y;
      section.row.style.top = y + "px";
      section.toggle.textContent = (section.open ? "▾ " : "▸ ") + section.label;
      section.toggle.setAttribute("aria-expanded", section.open);
      section.chips.forEach((chip, i) => chip.setAttribute("aria-pressed", section.groups[i].shown && section.open));
      y += FOLD;
      for (const group of section.groups) {
        const shown = section.open && group.shown, tall = Math.round(HEIGHTS[group.group] * scale);
        for (const lane of group.lanes) {
          lane.visible = shown;
          lane.top = y;
          lane.height = tall;
          // The causes of idle time share a line.
          if (shown && group.group !== "idle") y += tall + GAP;
        }
        if (shown && group.group === "idle") y += tall + GAP;
      }
    }
    return y + 4;
  }
}
