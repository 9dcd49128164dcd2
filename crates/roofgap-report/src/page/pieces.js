// Loads what is in view from the server that gave the page, where the items of the page are merged. A page of its own asks for nothing.
const PIECE_ITEMS = 40000, PIECE_DELAY = 150;
const COLUMNS = ["start", "length", "name", "link", "shape", "count", "bytes", "n", "reach", "taken", "first", "items", "text", "classes"];

class Pieces {
  constructor(timeline) {
    const named = document.querySelector("meta[name=roofgap-timeline]"), { lanes, meta } = timeline.data;
    this.timeline = timeline;
    this.source = named && lanes.some((lane) => lane.count) ? named.content : null;
    this.shown = null; // the span of the piece in place of the items of the page
    this.asked = 0;
    if (!this.source) return;
    this.base = lanes.slice(lanes.length - meta.lanes.length); // those before follow from them
    for (const lane of lanes) lane.own = this.columns(lane);
    this.names = new Map();
    meta.names.forEach((name, i) => this.names.set(this.key(name), this.names.has(this.key(name)) ? -1 : i));
    document.getElementById("timeline-notes").append(element("li", `Where fewer than ${formatCount(PIECE_ITEMS)} items are around the view, the server gives them one by one.`));
  }

  key(name) { return `${name[1]} ${name[0]}`; }

  columns(lane) { return Object.fromEntries(COLUMNS.map((column) => [column, lane[column]])); }

  // Follows the view: a piece that it leaves makes room for the items of the page, and the next one is asked for when it rests.
  moved() {
    if (!this.source) return;
    const { from, to, whole } = this.timeline;
    if (this.shown && (Math.max(0, from) < this.shown[0] || Math.min(whole, to) > this.shown[1])) this.restore();
    clearTimeout(this.later);
    if (!this.shown) this.later = setTimeout(() => this.load(), PIECE_DELAY);
  }

  // Counts the items of a span in the group that has most; 0 if none is merged in the view.
  itemsIn(from, to) {
    const { timeline } = this, groups = new Map();
    let merged = false;
    for (const lane of this.base) {
      const end = after(lane.start, to, 0, lane.n);
      let items = 0;
      for (let i = after(lane.reach, from, 0, end); i < end; i++) {
        items += lane.count ? lane.count[i] : 1;
        if (lane.count && lane.count[i] > 1 && lane.start[i] <= timeline.to && lane.start[i] + lane.length[i] >= timeline.from) merged = true;
      }
      groups.set(lane.group, (groups.get(lane.group) || 0) + items);
    }
    return merged ? Math.max(...groups.values()) : 0;
  }

  // The view with some room on both sides, if that has few enough items.
  window() {
    const { from, to, whole } = this.timeline;
    for (const room of [1, 0.25, 0]) {
      const span = [Math.max(0, Math.floor(from - (to - from) * room)), Math.min(whole, Math.ceil(to + (to - from) * room))];
      const items = span[1] > span[0] ? this.itemsIn(...span) : 0;
      if (!items) return null;
      if (items <= PIECE_ITEMS) return span;
    }
    return null;
  }

  // Gives up what is on its way and makes room for the next request.
  abort() {
    this.request?.abort();
    return (this.request = new AbortController());
  }

  async load() {
    const span = this.shown ? null : this.window(), { box } = this.timeline;
    if (!span) return;
    const number = ++this.asked, request = this.abort();
    box.dataset.piece = "loading";
    let piece = null;
    try {
      // Launches before the view come on top of what is counted.
      const answer = await fetch(`${this.source}?from_ns=${span[0]}&to_ns=${span[1]}&limit=${2 * PIECE_ITEMS}`, { signal: request.signal });
      if (answer.ok) piece = await answer.json();
    } catch { /* no answer: the page keeps its own items */ }
    if (number !== this.asked) return;
    const fits = piece && piece.lanes.length === this.base.length && piece.lanes.every((lane, i) => lane.label === this.base[i].label && lane.group === this.base[i].group);
    if (fits) this.place(piece, span);
    else box.dataset.piece = "failed";
  }

  // Puts a piece in place of the items of the page.
  place(piece, span) {
    const { timeline } = this, { meta, lanes } = timeline.data, reader = new Reader(bytesOf(piece.columns));
    const names = piece.names.map((name) => {
      let at = this.names.get(this.key(name)) ?? -1;
      if (at < 0) {
        at = meta.names.push(name) - 1;
        this.names.set(this.key(name), at);
      }
      return at;
    });
    const fresh = { meta, lanes: numberCalls(piece.lanes.map((lane) => decodeLane(reader, lane))) };
    const ours = new Map(fresh.lanes.map((lane, i) => [lane, this.base[i]]));
    for (const lane of fresh.lanes) for (let i = 0; i < lane.n; i++) if (lane.name[i] >= 0) lane.name[i] = names[lane.name[i]];
    addDerivedLanes(fresh);
    for (const lane of lanes) {
      if (lane.section < 0) continue; // stages and steps are complete
      const at = this.base.indexOf(lane), derived = fresh.lanes.find((other) => other.items && other.group === lane.group && other.section === lane.section);
      const found = at >= 0 ? fresh.lanes[fresh.lanes.length - this.base.length + at] : derived;
      Object.assign(lane, this.columns(found || makeLane(lane.group, lane.label, lane.section, [])));
      if (lane.items) for (const item of lane.items) item.origin = { lane: ours.get(item.origin.lane), i: item.origin.i };
    }
    this.shown = span;
    timeline.box.dataset.piece = "shown";
    timeline.search.renew();
    timeline.changed();
  }

  // Puts the items of the page back, for what concerns all of them.
  restore() {
    if (!this.source) return;
    this.asked += 1; // an answer on its way is too late
    this.abort();
    clearTimeout(this.later);
    this.later = setTimeout(() => this.load(), PIECE_DELAY);
    delete this.timeline.box.dataset.piece;
    if (!this.shown) return;
    this.shown = null;
    for (const lane of this.timeline.data.lanes) Object.assign(lane, lane.own);
    this.timeline.changed();
  }

  // Makes sure that all items of a span are there.
  cover(from, to) {
    if (this.shown && (from < this.shown[0] || to > this.shown[1])) this.restore();
  }
}
