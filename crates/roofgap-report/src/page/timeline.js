// The timeline: what is in view, what is selected, and where the view is kept in the address.
class Timeline {
  constructor(data) {
    this.data = data;
    this.box = document.getElementById("plot");
    this.view = document.getElementById("timeline-view");
    this.box.timeline = this; // for the console of the browser, and for tests
    this.tip = document.getElementById("tip");
    makeTools();
    addDerivedLanes(data);
    this.painter = new Painter(this.box.querySelector("canvas"), document.getElementById("timeline-axis"), data);
    this.span = null; // the selected span of time
    this.whole = Math.max(1, data.meta.span);
    this.from = 0;
    this.to = this.whole;
    this.hits = null; // a flag for each name that is searched or highlighted
    this.selected = null;
    this.anchor = null; // lane, start and length of what was selected, which another set of items has at another position
    this.pending = false;
    this.sections = new Sections(data, this.box, () => this.resize());
    this.detail = new Detail(this);
    this.totals = new SpanTotals(this);
    this.search = new Search(this);
    this.gestures = new Gestures(this);
    this.minimap = new Minimap(this);
    this.tools();
    this.legend();
    this.pieces = new Pieces(this);
    new ResizeObserver(() => this.resize()).observe(this.box);
    for (const query of ["(prefers-color-scheme: dark)", "print"]) {
      // Draw at once: printing does not wait for the next frame.
      matchMedia(query).addEventListener("change", () => { this.painter.readColors(); this.resize(); this.painter.draw(this); });
    }
    this.resize();
    if (!this.readAddress()) this.showStages();
    this.draw(); // not after the next frame: a headless browser takes its picture before
    this.address = null; // nothing to keep until the user moves
    addEventListener("hashchange", () => { if (this.readAddress()) this.reveal(); });
  }

  resize() {
    const tall = window.innerHeight, full = this.view.classList.contains("full");
    const [room, least] = full ? [tall - 135, tall - 135] : [tall * 0.75 - AXIS, tall * 0.5];
    this.painter.resize(this.sections.place(Math.max(180, room), least));
    this.minimap.resize();
    this.draw(); // at once: a canvas of another size is black
  }

  scale() { return Math.max(1, this.painter.width - this.painter.left) / (this.to - this.from); }
  x(time) { return this.painter.left + (time - this.from) * this.scale(); }
  time(x) { return this.from + (x - this.painter.left) / this.scale(); }

  show(from, to, address) {
    const least = 50; // ns: less than any kernel
    const length = Math.min(this.whole * 1.02, Math.max(least, to - from));
    const middle = (from + to) / 2, margin = this.whole * 0.01;
    this.from = Math.min(Math.max(middle - length / 2, -margin), this.whole + margin - length);
    this.to = this.from + length;
    this.address = address || `t=${Math.round(this.from)}_${Math.round(this.to)}`;
    this.pieces.moved();
    this.keep();
    this.paint();
    if (this.pointed !== undefined) this.cursor(parseFloat(document.getElementById("cursor").style.left));
  }

  // Finds what was selected among other items of its lane.
  changed() {
    this.byCall = null;
    this.selected = null;
    if (this.anchor) {
      this.selected = this.locate(this.anchor);
      this.detail.show(this.selected);
    }
    this.paint();
  }

  // The item of a lane at a start and of a length, or the block that has it.
  locate({ lane, start, length }) {
    let best = after(lane.start, start, 0, lane.n) - 1;
    for (let i = best; i >= 0 && lane.start[i] === start; i--) if (lane.length[i] === length) best = i;
    return best >= 0 && lane.start[best] + lane.length[best] >= start ? { lane, i: best } : null;
  }

  // Shows all stages, or the whole run without any.
  showStages() {
    const spans = this.data.meta.stages.flatMap((stage) => stage.at);
    if (!spans.length) return this.show(0, this.whole);
    const from = spans.reduce((a, span) => Math.min(a, span[0]), Infinity);
    const to = spans.reduce((a, span) => Math.max(a, span[0] + span[1]), 0);
    this.show(from - (to - from) * 0.01, to + (to - from) * 0.01);
  }

  zoom(factor, at) {
    const anchor = at === undefined ? (this.from + this.to) / 2 : at;
    this.show(anchor - (anchor - this.from) * factor, anchor + (this.to - anchor) * factor);
  }

  pan(share) {
    const by = (this.to - this.from) * share;
    this.show(this.from + by, this.to + by);
  }

  paint() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => this.draw());
  }

  draw() {
    this.pending = false;
    const top = this.box.scrollTop;
    this.painter.draw(this, top, top + this.box.clientHeight + 1);
    this.minimap.draw();
    this.box.dataset.from = Math.round(this.from);
    this.box.dataset.to = Math.round(this.to);
  }

  // Keeps the position in the address, so that a link leads here.
  keep() {
    clearTimeout(this.later);
    this.later = setTimeout(() => {
      if (!this.address) return;
      const span = this.span ? `&s=${Math.round(this.span[0])}_${Math.round(this.span[1])}` : "", { anchor } = this;
      const item = anchor && anchor.lane.group !== "steps" ? `&i=${this.data.lanes.indexOf(anchor.lane)}_${anchor.start}_${anchor.length}` : "";
      try { history.replaceState(null, "", "#" + this.address + span + item); } catch { /* a page without an address of its own */ }
    }, 250);
  }

  // Goes to the position in the address: `t=FROM_TO` or `step=STAGE.NUMBER`, `s=FROM_TO` for a selected span and `i=LANE_START_LENGTH`
  // for a selected item.
  readAddress() {
    const parts = new URLSearchParams(location.hash.slice(1));
    const pair = (key) => { const found = /^(-?\d+)_(\d+)$/.exec(parts.get(key) || ""); return found && [Number(found[1]), Number(found[2])]; };
    const span = pair("s"), view = pair("t"), step = /^(.+)\.(\d+)$/.exec(parts.get("step") || "");
    if (span) this.select(span[0], span[1]);
    if (view) this.show(view[0], view[1]);
    const stage = step ? this.data.meta.stages.findIndex((known) => known.name === step[1]) : -1;
    if (stage >= 0) this.stepOf(stage, Number(step[2]) - 1);
    const item = /^(\d+)_(\d+)_(\d+)$/.exec(parts.get("i") || ""), lane = item && this.data.lanes[Number(item[1])];
    if (lane) this.pick(this.locate({ lane, start: Number(item[2]), length: Number(item[3]) }));
    return Boolean(view) || stage >= 0;
  }

  // The item under a point: the one that begins last there, so the innermost, or the nearest within three pixels.
  find(x, y) {
    if (x < this.painter.left) return null;
    const time = this.time(x), near = 3 / this.scale();
    let best = null, distance = near;
    for (const lane of this.data.lanes) {
      if (!lane.visible || y < lane.top || y >= lane.top + lane.height) continue;
      const end = after(lane.start, time + near, 0, lane.n);
      for (let i = after(lane.reach, time - near, 0, end); i < end; i++) {
        const off = Math.max(lane.start[i] - time, time - lane.start[i] - lane.length[i], 0);
        if (off <= distance) { distance = off; best = { lane, i }; }
      }
    }
    return best;
  }

  // The launch of an operation, or the operations of a launch.
  partners({ lane, i }) {
    if (lane.group === "streams") {
      const call = this.callOf(lane, i);
      return call ? [call] : [];
    }
    return lane.group === "calls" ? this.launched(lane.first + i) : [];
  }

  callOf(lane, i) {
    const number = lane.link ? lane.link[i] : -1;
    if (number < 0) return null;
    const calls = this.data.lanes.find((l) => l.group === "calls" && number >= l.first && number < l.first + l.n);
    return calls ? { lane: calls, i: number - calls.first } : null;
  }

  // Operations by the number of their call; built on first use.
  launched(number) {
    if (!this.byCall) {
      this.byCall = new Map();
      for (const lane of this.data.lanes) {
        if (!lane.link) continue;
        for (let i = 0; i < lane.n; i++) {
          if (lane.link[i] < 0) continue;
          const list = this.byCall.get(lane.link[i]);
          if (!list) this.byCall.set(lane.link[i], [{ lane, i }]);
          else if (list.length < 64) list.push({ lane, i });
        }
      }
    }
    return this.byCall.get(number) || [];
  }

  pick(item, reveal) {
    // A copy in the lane of copies is the one of its stream.
    if (item && item.lane.items && item.lane.group === "copies") item = item.lane.items[item.i].origin;
    this.selected = item;
    this.anchor = item && { lane: item.lane, start: item.lane.start[item.i], length: item.lane.length[item.i] };
    this.detail.show(item);
    if (item) {
      this.address ||= `t=${Math.round(this.from)}_${Math.round(this.to)}`;
      // An arrow needs both ends.
      for (const other of this.partners(item).slice(0, 1)) this.sections.reveal(other.lane);
    }
    this.keep();
    if (item && reveal) {
      const { lane, i } = item, start = lane.start[i], end = start + lane.length[i];
      this.sections.reveal(lane);
      if (start < this.from || end > this.to) {
        const length = Math.max(this.to - this.from, lane.length[i] * 1.5);
        this.show((start + end - length) / 2, (start + end + length) / 2);
      }
      if (lane.top < this.box.scrollTop || lane.top + lane.height > this.box.scrollTop + this.box.clientHeight) this.box.scrollTop = lane.top - 40;
    }
    this.paint();
  }

  // Selects a span of time and shows its totals.
  select(from, to) {
    this.span = from === undefined ? null : [Math.min(from, to), Math.max(from, to)];
    if (this.span) this.pieces.cover(...this.span);
    this.totals.show(this.span);
    this.keep();
    this.paint();
  }

  // Selects the span of the selected item, or what is in view.
  selectShown() {
    const item = this.selected;
    if (!item) return this.select(Math.max(0, this.from), Math.min(this.whole, this.to));
    this.select(item.lane.start[item.i], item.lane.start[item.i] + item.lane.length[item.i]);
  }

  step(by) {
    let item = this.selected;
    if (!item) {
      const lanes = this.data.lanes.filter((l) => l.n && l.visible);
      const lane = lanes.find((l) => l.group === "streams") || lanes[0];
      if (!lane) return;
      item = { lane, i: Math.min(lane.n - 1, after(lane.start, this.from, 0, lane.n)) - by };
    }
    const { lane } = item;
    let i = item.i + by;
    while (this.hits && lane.group === "streams" && i >= 0 && i < lane.n && !this.hits[lane.name[i]]) i += by;
    if (i >= 0 && i < lane.n) return this.pick({ lane, i }, true);
    // The next one is beyond the piece.
    if (!this.pieces.shown) return;
    this.pieces.restore();
    if (this.selected) this.step(by);
  }

  // Moves the selection to the nearest item of a lane above or below.
  climb(by) {
    if (!this.selected) return this.step(1);
    const { lane, i } = this.selected;
    const lanes = this.data.lanes.filter((l) => l.n && l.visible && l.group !== "copies").sort((a, b) => a.top - b.top);
    const next = lanes[lanes.indexOf(lane) + by];
    if (!next) return;
    this.pick({ lane: next, i: Math.max(0, after(next.start, lane.start[i], 0, next.n) - 1) }, true);
  }

  focusSelected() {
    if (!this.selected) return;
    const { lane, i } = this.selected, length = Math.max(200, lane.length[i]);
    const middle = lane.start[i] + lane.length[i] / 2;
    this.show(middle - length, middle + length);
  }

  // Zooms in on an item that is too narrow to be read.
  approach({ lane, i }) {
    if (lane.length[i] * this.scale() >= 8) return;
    const around = Math.max(500, lane.length[i] * 12), middle = lane.start[i] + lane.length[i] / 2;
    this.show(middle - around, middle + around);
  }

  // Shows the moment under the pointer.
  cursor(x) {
    const mark = document.getElementById("cursor");
    mark.hidden = x === null || x < this.painter.left;
    this.pointed = mark.hidden ? undefined : this.time(x);
    if (mark.hidden) return;
    mark.style.left = x + "px";
    mark.classList.toggle("flip", x > this.painter.width - 110);
    mark.firstElementChild.textContent = formatMoment(this.pointed);
  }

  // Fills the window with the timeline, or gives it back.
  full(on = !this.view.classList.contains("full")) {
    this.view.classList.toggle("full", on);
    document.getElementById("full-screen").ariaPressed = String(on);
    this.resize();
    this.box.focus({ preventScroll: true });
  }

  // Shows the GPU work of the longest instance of a stage, else the instance.
  stage(index, focus) {
    const { at, gpu } = this.data.meta.stages[index];
    if (!at.length) return;
    const longest = gpu || at.reduce((a, b) => (b[1] > a[1] ? b : a));
    this.show(longest[0] - longest[1] * 0.02, longest[0] + longest[1] * 1.02);
    if (focus) this.reveal();
  }

  // Goes to a step and selects it; the address names it.
  stepOf(stage, index) {
    const known = this.data.meta.stages[stage], step = known.steps[index];
    if (!step) return;
    this.show(step[0] - step[1] * 0.05, step[0] + step[1] * 1.05, `step=${encodeURIComponent(known.name)}.${index + 1}`);
    const lane = this.data.lanes.find((l) => l.group === "steps");
    const i = lane ? lane.items.findIndex((item) => item.stage === stage && item.step === index) : -1;
    if (i >= 0) this.pick({ lane, i });
    this.reveal();
  }

  // Highlights every launch of a kernel and goes to the longest in a stage, of one launch shape if one is given.
  kernel(name, stage, shape) {
    this.pieces.restore();
    const hits = new Uint8Array(this.data.meta.names.length);
    hits[name] = 1;
    this.highlight(hits);
    const places = stage === undefined ? [] : this.data.meta.stages[stage].at;
    const inside = (t) => !places.length || places.some((p) => t >= p[0] && t <= p[0] + p[1]);
    const fits = (lane, i) => !shape || this.data.meta.shapes[lane.shape[i]].slice(0, 6).join() === shape;
    let best = null;
    for (const lane of this.data.lanes) {
      if (lane.group !== "streams") continue;
      for (let i = 0; i < lane.n; i++) {
        if (lane.name[i] !== name || best && lane.length[i] <= best.lane.length[best.i]) continue;
        if (inside(lane.start[i]) && fits(lane, i)) best = { lane, i };
      }
    }
    if (!best && shape) return this.kernel(name, stage);
    if (best) {
      const around = Math.max(best.lane.length[best.i] * 12, 20000), middle = best.lane.start[best.i];
      this.show(middle - around, middle + around);
      this.pick(best, false);
      this.sections.reveal(best.lane);
    }
    this.reveal();
  }

  highlight(hits) {
    this.hits = hits;
    document.getElementById("clear-mark").hidden = !hits;
    this.paint();
  }

  reveal() {
    document.getElementById("timeline").scrollIntoView({ block: "start" });
    this.box.focus({ preventScroll: true });
  }

  tools() {
    const on = (id, act) => document.getElementById(id).addEventListener("click", act);
    on("zoom-in", () => this.zoom(0.5));
    on("zoom-out", () => this.zoom(2));
    on("zoom-all", () => this.show(0, this.whole));
    on("clear-mark", () => { this.search.clear(); this.highlight(null); });
    on("full-screen", () => this.full());
    on("show-keys", () => document.getElementById("timeline-keys").showModal());
    const jumps = document.getElementById("stage-jumps");
    this.data.meta.stages.forEach((stage, i) => {
      if (!stage.at.length) return;
      const button = element("button", stage.name, { type: "button" });
      button.addEventListener("click", () => this.stage(i));
      jumps.append(button);
    });
    const notes = document.getElementById("timeline-notes");
    for (const note of this.data.meta.notes) notes.append(element("li", note));
  }

  legend() {
    const used = new Set();
    for (const lane of this.data.lanes) for (let i = 0; i < lane.n; i++) used.add(lane.name[i] < 0 ? -1 : this.data.meta.names[lane.name[i]][1]);
    const list = document.getElementById("timeline-legend");
    this.data.meta.stages.forEach((stage, i) => { if (stage.at.length) list.append(element("li", null, {}, element("i", null, { className: `s-${i % STAGE_COLORS}` }), stage.name)); });
    this.data.meta.classes.forEach((name, i) => {
      if (!used.has(i)) return;
      const patch = element("i");
      patch.style.background = `var(--c-${name === "copy/layout" ? "layout" : name})`;
      list.append(element("li", null, {}, patch, name.replace("idle-", "idle: ")));
    });
  }
}
