// Decodes the packed columns of the timeline into typed arrays.
function bytesOf(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

class Reader {
  constructor(bytes) { this.bytes = bytes; this.at = 0; }
  next() {
    let value = 0, scale = 1, byte;
    do {
      byte = this.bytes[this.at++];
      value += (byte & 127) * scale; // not by shifts: begins go beyond 32 bits
      scale *= 128;
    } while (byte > 127);
    return value;
  }
  column(into) {
    const bytes = this.bytes;
    let at = this.at;
    for (let i = 0; i < into.length; i++) {
      let byte = bytes[at++], value = byte;
      if (byte > 127) {
        value &= 127;
        let scale = 128;
        do {
          byte = bytes[at++];
          value += (byte & 127) * scale;
          scale *= 128;
        } while (byte > 127);
      }
      into[i] = value;
    }
    this.at = at;
    return into;
  }
}

// A lane: starts, lengths, names and links, with sums that let drawing skip items.
function decodeLane(reader, meta) {
  const n = meta.count;
  reader.at = meta.offset;
  const start = reader.column(new Float64Array(n));
  for (let i = 1; i < n; i++) start[i] += start[i - 1];
  const length = reader.column(new Float64Array(n));
  const name = reader.column(new Int32Array(n));
  for (let i = 0; i < n; i++) name[i] -= 1;
  let link = null, shape = null;
  if (meta.group === "streams") {
    link = reader.column(new Float64Array(n));
    let last = 0;
    for (let i = 0; i < n; i++) {
      const zigzag = link[i];
      last += zigzag % 2 ? -(zigzag + 1) / 2 : zigzag / 2;
      link[i] = last - 1;
    }
    shape = reader.column(new Int32Array(n));
  }
  let count = null, busy = length;
  if (meta.merged) {
    count = reader.column(new Float64Array(n));
    busy = reader.column(new Float64Array(n));
  }
  const bytes = new Map();
  for (let i = 0, at = 0; i < meta.transfers; i++) {
    at += reader.next();
    bytes.set(at, reader.next());
  }
  const lane = { group: meta.group, label: meta.label, section: meta.section, start, length, name, link, shape, count, bytes };
  return finishLane(lane, busy);
}

// Adds what drawing and searching need to the columns of a lane.
function finishLane(lane, busy = lane.length) {
  const n = lane.start.length, { start, length } = lane;
  // The largest end so far finds items that reach into view; sums give the occupied time of a column of pixels.
  const reach = new Float64Array(n), taken = new Float64Array(n + 1);
  let furthest = 0;
  for (let i = 0; i < n; i++) {
    furthest = Math.max(furthest, start[i] + length[i]);
    reach[i] = furthest;
    taken[i + 1] = taken[i] + busy[i];
  }
  return { link: null, shape: null, count: null, ...lane, n, reach, taken, first: 0, top: 0, height: 0, visible: false };
}

// Returns the first position from `from` on whose value exceeds `value` in a sorted array.
function after(array, value, from, to) {
  let low = from, high = to;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (array[middle] > value) high = middle; else low = middle + 1;
  }
  return low;
}

function decodeTimeline() {
  const meta = JSON.parse(document.getElementById("timeline-meta").textContent);
  if (!meta) return null;
  const reader = new Reader(bytesOf(document.getElementById("timeline-columns").textContent));
  return { meta, lanes: numberCalls(meta.lanes.map((lane) => decodeLane(reader, lane))) };
}

// Links of operations count calls over all lanes.
function numberCalls(lanes) {
  let calls = 0;
  for (const lane of lanes) {
    if (lane.group !== "calls") continue;
    lane.first = calls;
    calls += lane.n;
  }
  return lanes;
}

// A number with commas between thousands, as the tables without scripts have it.
const grouped = (value, decimals) => value.toLocaleString("en-US", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });

// Formats a duration as the text of the report does: three significant digits in a fitting unit.
function formatTime(ns) {
  if (Math.abs(ns) < 1e3) return ns.toFixed(0) + " ns";
  const units = [[1e3, "µs"], [1e6, "ms"], [1e9, "s"]];
  const [unit, name] = units.find(([unit]) => Math.abs(ns / unit) < 999.5) ?? units[2];
  const value = ns / unit, size = Math.abs(value);
  return grouped(value, size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2) + " " + name;
}

// Formats a duration with all its digits beside the rounded ones.
function formatDuration(ns) { return formatTime(ns) + (ns < 1e3 ? "" : ` (${grouped(ns, 0)} ns)`); }

// Formats a moment in the unit of the axis.
function formatMoment(ns) { return grouped(ns / 1e6, 3) + " ms"; }

function formatBytes(n) {
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (n < 1000) return (unit === "B" ? n : n.toFixed(2)) + " " + unit;
    n /= 1000;
  }
  return n.toFixed(2) + " TB";
}

function formatPercent(part, whole) { return whole > 0 ? (100 * part / whole).toFixed(1) + " %" : "–"; }

// Creates an element with text and children; text from a capture is only ever set as text.
function element(tag, text, options = {}, ...children) {
  const made = Object.assign(document.createElement(tag), options);
  if (text !== null && text !== undefined) made.textContent = text;
  made.append(...children);
  return made;
}

function formatCount(n) { return String(n).replace(/\B(?=(\d{3})+$)/g, ","); }
