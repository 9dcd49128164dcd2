// The timeline: what is in view, what is selected, and how the user moves.
class Timeline {
  constructor(data) {
    this.data = data;
    this.box = document.getElementById("plot");
    this.tip = document.getElementById("tip");
    this.item = document.getElementById("timeline-item");
    this.addStages();
    this.painter = new Painter(this.box.querySelector("canvas"), data);
    this.span = Math.max(1, data.meta.span);
    this.from = 0;
    this.to = this.span;
    this.mark = -1;
    this.selected = null;
    this.pending = false;
    this.pointers = new Map();
    this.listen();
    this.tools();
    this.legend();
    new ResizeObserver(() => { this.painter.resize(); this.paint(); }).observe(this.box);
    for (const query of ["(prefers-color-scheme: dark)", "print"]) {
      // Draw at once: printing does not wait for the next frame.
      matchMedia(query).addEventListener("change", () => { this.painter.readColors(); this.painter.resize(); this.painter.draw(this); });
    }
    this.painter.resize();
    this.show(0, this.span);
  }

  // Adds the stages as the top lane.
  addStages() {
    const palette = ["gemm", "attention", "moe", "norm", "elementwise", "communication"].map((c) => this.data.meta.classes.indexOf(c));
    const items = this.data.meta.stages.flatMap((stage, s) => stage.at.map(([start, length]) => ({ start, length, s })));
    if (!items.length) return;
    items.sort((a, b) => a.start - b.start);
    const n = items.length, lane = {
      group: "stages", label: "", n, link: null, count: null, first: 0, top: 0, height: 0,
      start: Float64Array.from(items, (i) => i.start), length: Float64Array.from(items, (i) => i.length),
      name: new Int32Array(n).fill(-1), reach: new Float64Array(n), taken: new Float64Array(n + 1),
      text: items.map((i) => this.data.meta.stages[i.s].name), classes: items.map((i) => palette[i.s % palette.length]),
    };
    let reach = 0;
    for (let i = 0; i < n; i++) {
      reach = Math.max(reach, lane.start[i] + lane.length[i]);
      lane.reach[i] = reach;
      lane.taken[i + 1] = lane.taken[i] + lane.length[i];
    }
    this.data.lanes.unshift(lane);
  }

  scale() { return Math.max(1, this.painter.width - this.painter.left) / (this.to - this.from); }
  x(time) { return this.painter.left + (time - this.from) * this.scale(); }
  time(x) { return this.from + (x - this.painter.left) / this.scale(); }

  show(from, to) {
    const least = 50; // ns: less than any kernel
    const length = Math.min(this.span * 1.02, Math.max(least, to - from));
    const middle = (from + to) / 2, margin = this.span * 0.01;
    this.from = Math.min(Math.max(middle - length / 2, -margin), this.span + margin - length);
    this.to = this.from + length;
    this.paint();
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
    requestAnimationFrame(() => {
      this.pending = false;
      this.painter.draw(this);
      this.box.dataset.from = Math.round(this.from);
      this.box.dataset.to = Math.round(this.to);
    });
  }

  // The item under a point: the one that begins last there, so the innermost, or the nearest within three pixels.
  find(x, y) {
    const lane = this.data.lanes.find((l) => y >= l.top && y < l.top + l.height);
    if (!lane || x < this.painter.left) return null;
    const time = this.time(x), near = 3 / this.scale();
    let best = null, distance = near;
    const end = after(lane.start, time + near, 0, lane.n);
    for (let i = after(lane.reach, time - near, 0, end); i < end && i < lane.n; i++) {
      const off = Math.max(lane.start[i] - time, time - lane.start[i] - lane.length[i], 0);
      if (off <= distance) { distance = off; best = { lane, i }; }
    }
    return best;
  }

  // The launch of an operation, or the operations of a launch.
  partners({ lane, i }) {
    if (lane.group === "streams") {
      const call = this.callOf(lane, i);
      return call ? [call] : [];
    }
    if (lane.group !== "calls") return [];
    return this.launched(lane.first + i);
  }

  callOf(lane, i) {
    const number = lane.link[i];
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

  describe({ lane, i }) {
    const lines = [this.painter.nameOf(lane, i)];
    const kind = lane.name[i] < 0 ? lane.group : this.data.meta.classes[this.data.meta.names[lane.name[i]][1]];
    lines.push((lane.label ? lane.label + " · " : "") + kind + " · " + formatTime(lane.length[i]) + " from " + formatTime(lane.start[i]));
    if (lane.count && lane.count[i] > 1) lines.push(formatCount(lane.count[i]) + " items, " + formatTime(lane.taken[i + 1] - lane.taken[i]) + " occupied");
    if (lane.group === "streams" && lane.link[i] >= 0) {
      const call = this.callOf(lane, i);
      if (call) lines.push("launched " + formatTime(lane.start[i] - call.lane.start[call.i]) + " before it began, by " + this.painter.nameOf(call.lane, call.i));
    }
    return lines.join("\n");
  }

  select(item, reveal) {
    this.selected = item;
    this.item.textContent = item ? this.describe(item) : "Nothing selected.";
    if (item && reveal) {
      const { lane, i } = item, start = lane.start[i], end = start + lane.length[i];
      if (start < this.from || end > this.to) {
        const length = Math.max(this.to - this.from, lane.length[i] * 1.5);
        this.show((start + end - length) / 2, (start + end + length) / 2);
      }
      if (lane.top < this.box.scrollTop || lane.top + lane.height > this.box.scrollTop + this.box.clientHeight) this.box.scrollTop = lane.top - 40;
    }
    this.paint();
  }

  step(by) {
    let item = this.selected;
    if (!item) {
      const lane = this.data.lanes.find((l) => l.group === "streams" && l.n) || this.data.lanes.find((l) => l.n);
      if (!lane) return;
      item = { lane, i: Math.min(lane.n - 1, after(lane.start, this.from, 0, lane.n)) - by };
    }
    const { lane } = item;
    let i = item.i + by;
    while (this.mark >= 0 && lane.group === "streams" && i >= 0 && i < lane.n && lane.name[i] !== this.mark) i += by;
    if (i >= 0 && i < lane.n) this.select({ lane, i }, true);
  }

  // Moves the selection to the nearest item of a lane above or below.
  climb(by) {
    if (!this.selected) return this.step(1);
    const { lane, i } = this.selected, lanes = this.data.lanes.filter((l) => l.n);
    const next = lanes[lanes.indexOf(lane) + by];
    if (!next) return;
    const at = Math.max(0, after(next.start, lane.start[i], 0, next.n) - 1);
    this.select({ lane: next, i: at }, true);
  }

  focusSelected() {
    if (!this.selected) return;
    const { lane, i } = this.selected, length = Math.max(200, lane.length[i]);
    const middle = lane.start[i] + lane.length[i] / 2;
    this.show(middle - length, middle + length);
  }

  stage(index, focus) {
    const at = this.data.meta.stages[index].at;
    if (!at.length) return;
    const longest = at.reduce((a, b) => (b[1] > a[1] ? b : a));
    this.show(longest[0] - longest[1] * 0.02, longest[0] + longest[1] * 1.02);
    if (focus) this.reveal();
  }

  stepOf(stage, index) {
    const step = this.data.meta.stages[stage].steps[index];
    if (!step) return;
    this.show(step[0] - step[1] * 0.05, step[0] + step[1] * 1.05);
    this.reveal();
  }

  // Highlights every launch of a kernel and goes to the longest in a stage.
  kernel(name, stage) {
    this.setMark(name);
    const places = stage === undefined ? [] : this.data.meta.stages[stage].at;
    const inside = (t) => !places.length || places.some((p) => t >= p[0] && t <= p[0] + p[1]);
    let best = null;
    for (const lane of this.data.lanes) {
      if (lane.group !== "streams") continue;
      for (let i = 0; i < lane.n; i++) {
        if (lane.name[i] === name && inside(lane.start[i]) && (!best || lane.length[i] > best.lane.length[best.i])) best = { lane, i };
      }
    }
    if (best) {
      const around = Math.max(best.lane.length[best.i] * 12, 20000), middle = best.lane.start[best.i];
      this.show(middle - around, middle + around);
      this.select(best, false);
    }
    this.reveal();
  }

  setMark(name) {
    this.mark = name;
    document.getElementById("clear-mark").hidden = name < 0;
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
    on("zoom-all", () => this.show(0, this.span));
    on("clear-mark", () => this.setMark(-1));
    const jumps = document.getElementById("stage-jumps");
    this.data.meta.stages.forEach((stage, i) => {
      if (!stage.at.length) return;
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = stage.name;
      button.addEventListener("click", () => this.stage(i));
      jumps.append(button);
    });
    const notes = document.getElementById("timeline-notes");
    for (const note of this.data.meta.notes) notes.append(Object.assign(document.createElement("li"), { textContent: note }));
  }

  legend() {
    const used = new Set();
    for (const lane of this.data.lanes) for (let i = 0; i < lane.n; i++) used.add(lane.name[i] < 0 ? -1 : this.data.meta.names[lane.name[i]][1]);
    const list = document.getElementById("timeline-legend");
    this.data.meta.classes.forEach((name, i) => {
      if (!used.has(i)) return;
      const entry = document.createElement("li"), patch = document.createElement("i");
      patch.style.background = `var(--c-${name === "copy/layout" ? "layout" : name})`;
      entry.append(patch, name);
      list.append(entry);
    });
  }

  listen() {
    const box = this.box, canvas = box.querySelector("canvas");
    const at = (event) => { const r = canvas.getBoundingClientRect(); return { x: event.clientX - r.left, y: event.clientY - r.top }; };
    box.addEventListener("wheel", (event) => {
      const focused = document.activeElement === box;
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey) {
        event.preventDefault();
        this.pan((event.deltaX || event.deltaY) / Math.max(1, this.painter.width));
      } else if (focused || event.ctrlKey || event.metaKey) {
        event.preventDefault();
        const lines = event.deltaMode === 1 ? 24 : 1;
        this.zoom(Math.exp(Math.max(-240, Math.min(240, event.deltaY * lines)) * 0.0022), this.time(at(event).x));
      }
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.pointers.set(event.pointerId, at(event));
      this.moved = 0;
      box.classList.add("drag");
      if (event.pointerType === "mouse") box.focus({ preventScroll: true });
    });
    canvas.addEventListener("pointermove", (event) => {
      const now = at(event), before = this.pointers.get(event.pointerId);
      if (!before) return this.hover(now);
      this.tip.hidden = true;
      this.moved += Math.abs(now.x - before.x) + Math.abs(now.y - before.y);
      if (this.pointers.size === 1) {
        const by = (before.x - now.x) / this.scale();
        if (this.moved > 3) this.show(this.from + by, this.to + by);
      } else {
        const other = [...this.pointers].find(([id]) => id !== event.pointerId)[1];
        const was = Math.abs(before.x - other.x), is = Math.abs(now.x - other.x);
        if (was > 8 && is > 8) this.zoom(was / is, this.time((now.x + other.x) / 2));
      }
      this.pointers.set(event.pointerId, now);
    });
    const up = (event) => {
      const there = this.pointers.delete(event.pointerId);
      if (!this.pointers.size) box.classList.remove("drag");
      if (there && event.type === "pointerup" && this.moved <= 3) { const p = at(event); this.select(this.find(p.x, p.y)); }
    };
    canvas.addEventListener("pointerup", up);
    canvas.addEventListener("pointercancel", up);
    canvas.addEventListener("pointerleave", () => { this.tip.hidden = true; });
    canvas.addEventListener("dblclick", (event) => { const p = at(event), item = this.find(p.x, p.y); if (item) { this.select(item); this.focusSelected(); } });
    box.addEventListener("keydown", (event) => this.key(event));
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const acts = {
      ArrowLeft: () => this.pan(-0.15), ArrowRight: () => this.pan(0.15),
      ArrowUp: () => this.climb(-1), ArrowDown: () => this.climb(1),
      "+": () => this.zoom(0.6), "=": () => this.zoom(0.6), "-": () => this.zoom(1 / 0.6), "_": () => this.zoom(1 / 0.6),
      0: () => this.show(0, this.span), Home: () => this.pan(-1e9), End: () => this.pan(1e9),
      n: () => this.step(1), N: () => this.step(1), p: () => this.step(-1), P: () => this.step(-1),
      f: () => this.focusSelected(), F: () => this.focusSelected(),
      Enter: () => { const other = this.selected && this.partners(this.selected)[0]; if (other) this.select(other, true); },
      Escape: () => { this.select(null); this.setMark(-1); },
    };
    if (!Object.hasOwn(acts, event.key)) return;
    event.preventDefault();
    acts[event.key]();
  }

  hover(point) {
    const item = this.find(point.x, point.y), tip = this.tip;
    tip.hidden = !item;
    if (!item) return;
    tip.textContent = this.describe(item);
    const room = this.box.clientWidth - tip.offsetWidth - 8;
    tip.style.left = Math.max(4, Math.min(point.x + 14, room)) + "px";
    const below = point.y + 18, over = this.box.scrollTop + this.box.clientHeight;
    tip.style.top = (below + tip.offsetHeight > over ? Math.max(0, point.y - tip.offsetHeight - 10) : below) + "px";
  }
}
