// The drawer of a kernel: its full name, and what the page knows of its launches.
const BARS = 40, DRAWER_ROWS = 6, LOOKED_AT = 4000;

// The launches of a kernel that are drawn one by one.
function launchesOf(timeline, name) {
  const found = [];
  for (const lane of timeline.data.lanes) {
    if (lane.group !== "streams") continue;
    for (let i = 0; i < lane.n; i++) if (lane.name[i] === name) found.push({ lane, i });
  }
  return found;
}

// Adds up launches by a key, the most time first.
function sumBy(launches, key) {
  const sums = new Map();
  for (const { lane, i } of launches) {
    const of = key(lane, i), sum = sums.get(of) || { of, count: 0, ns: 0 };
    sum.count += 1;
    sum.ns += lane.length[i];
    sums.set(of, sum);
  }
  return [...sums.values()].sort((a, b) => b.ns - a.ns);
}

function drawerList(title, rows) {
  if (!rows.length) return [];
  const shown = rows.slice(0, DRAWER_ROWS).map((text) => element("li", text));
  if (rows.length > DRAWER_ROWS) shown.push(element("li", `${formatCount(rows.length - DRAWER_ROWS)} more`));
  return [element("div", null, {}, element("h4", title), element("ul", null, {}, ...shown))];
}

function histogram(launches) {
  const times = launches.map(({ lane, i }) => lane.length[i]).sort((a, b) => a - b);
  if (times.length < 2) return [];
  const low = times[0], high = times.at(-1), bars = new Array(BARS).fill(0), size = Math.max(1, (high - low) / BARS);
  for (const ns of times) bars[Math.min(BARS - 1, Math.floor((ns - low) / size))] += 1;
  const most = Math.max(...bars), label = `${formatTime(low)} to ${formatTime(high)}, median ${formatTime(times[times.length >> 1])}, of ${formatCount(times.length)} launches`;
  const drawn = bars.map((count, i) => {
    const bar = element("i", null, { title: `${formatCount(count)} from ${formatTime(low + i * size)}` });
    bar.style.height = `${100 * count / most}%`;
    return bar;
  });
  const box = element("div", null, { className: "histogram", role: "img", ariaLabel: label }, ...drawn);
  return [element("div", null, {}, element("h4", "Durations"), box, element("small", label))];
}

function drawer(data, row, scope, timeline) {
  const name = data.names[row[0]], parts = [], texts = (rows) => rows.filter((measured) => measured.name === row[0]).map(({ shape, text }) => {
    const [x, y, z, ...block] = shape.split(",");
    return shape ? `grid ${x} × ${y} × ${z}, block ${block.join(" × ")}: ${text}` : text;
  });
  const said = (sum) => `${sum.of}: ${formatCount(sum.count)} launches, ${formatTime(sum.ns)}`;
  const button = element("button", "Show in the timeline", { type: "button" });
  if (timeline && name.timeline !== null) {
    timeline.pieces.restore();
    const launches = launchesOf(timeline, name.timeline), { shapes } = timeline.data.meta;
    parts.push(...histogram(launches));
    const known = launches.filter(({ lane, i }) => lane.shape[i] > 0);
    const shape = (lane, i) => { const s = shapes[lane.shape[i]]; return `grid ${s.slice(0, 3).join(" × ")}, block ${s.slice(3, 6).join(" × ")}`; };
    parts.push(...drawerList("Launch shapes", sumBy(known, shape).map(said)));
    // The innermost range around the launch; layers that differ in their number are one.
    const place = (lane, i) => {
      const call = timeline.callOf(lane, i), inside = call ? timeline.detail.around("ranges", call.lane.section, call.lane.start[call.i]) : [];
      return inside.length ? inside.at(-1).replace(/\d+/g, "*") : "no range";
    };
    const places = sumBy(launches.slice(0, LOOKED_AT), place);
    if (places.some((sum) => sum.of !== "no range")) parts.push(...drawerList("Launched inside", places.map(said)));
    button.addEventListener("click", () => timeline.kernel(name.timeline, scope > 0 ? scope - 1 : undefined));
  } else button.hidden = true;
  const ofStage = data.scopes.slice(1).flatMap((stage, s) => {
    const own = data.rows[s + 1].filter((other) => other[0] === row[0]);
    return own.length ? [{ of: stage, count: own.reduce((n, r) => n + r[3], 0), ns: own.reduce((n, r) => n + r[2], 0) }] : [];
  });
  parts.push(...drawerList("Stages", ofStage.map(said)), ...drawerList("Counters of ncu", texts(data.counters)), ...drawerList("Rules of ncu", texts(data.rules)), ...drawerList("Operators", texts(data.operators)));
  const verdict = row[9] === null ? [] : [element("p", row[9])];
  return [element("p", name.full || name.short, { className: "full-name" }), ...verdict, element("div", null, { className: "drawer" }, ...parts), button];
}
