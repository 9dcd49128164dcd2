// Pointers, the wheel and keys of the timeline.
class Gestures {
  constructor(timeline) {
    this.timeline = timeline;
    this.box = timeline.box;
    this.canvas = this.box.querySelector("canvas");
    this.pointers = new Map();
    this.mode = document.getElementById("select-mode");
    this.mode.addEventListener("click", () => this.mode.setAttribute("aria-pressed", this.mode.getAttribute("aria-pressed") !== "true"));
    this.box.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.box.addEventListener("scroll", () => timeline.paint());
    this.box.addEventListener("keydown", (event) => this.key(event));
    const canvas = this.canvas;
    canvas.addEventListener("pointerdown", (event) => this.down(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    canvas.addEventListener("pointerup", (event) => this.up(event));
    canvas.addEventListener("pointercancel", (event) => this.up(event));
    canvas.addEventListener("pointerleave", () => { timeline.tip.hidden = true; timeline.cursor(null); });
    canvas.addEventListener("dblclick", (event) => {
      const point = this.at(event), item = timeline.find(point.x, point.y);
      if (item) { timeline.pick(item); timeline.focusSelected(); }
    });
  }

  at(event) {
    const frame = this.canvas.getBoundingClientRect();
    return { x: event.clientX - frame.left, y: event.clientY - frame.top };
  }

  wheel(event) {
    const { timeline } = this, focused = document.activeElement === this.box;
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey) {
      event.preventDefault();
      timeline.pan((event.deltaX || event.deltaY) / Math.max(1, timeline.painter.width));
    } else if (focused || event.ctrlKey || event.metaKey) {
      event.preventDefault();
      const lines = event.deltaMode === 1 ? 24 : 1;
      timeline.zoom(Math.exp(Math.max(-240, Math.min(240, event.deltaY * lines)) * 0.0022), timeline.time(this.at(event).x));
    }
  }

  down(event) {
    this.canvas.setPointerCapture(event.pointerId);
    const point = this.at(event);
    this.pointers.set(event.pointerId, point);
    this.moved = 0;
    this.anchor = event.shiftKey || this.mode.getAttribute("aria-pressed") === "true" ? this.timeline.time(point.x) : null;
    this.box.classList.add(this.anchor === null ? "drag" : "marking");
    if (event.pointerType === "mouse") this.box.focus({ preventScroll: true });
  }

  move(event) {
    const { timeline } = this, now = this.at(event), before = this.pointers.get(event.pointerId);
    timeline.cursor(now.x);
    if (!before) return this.hover(now);
    timeline.tip.hidden = true;
    this.moved += Math.abs(now.x - before.x) + Math.abs(now.y - before.y);
    if (this.pointers.size > 1) {
      const other = [...this.pointers].find(([id]) => id !== event.pointerId)[1];
      const was = Math.abs(before.x - other.x), is = Math.abs(now.x - other.x);
      if (was > 8 && is > 8) timeline.zoom(was / is, timeline.time((now.x + other.x) / 2));
    } else if (this.moved > 3 && this.anchor !== null) {
      timeline.select(this.anchor, timeline.time(Math.max(timeline.painter.left, now.x)));
    } else if (this.moved > 3) {
      const by = (before.x - now.x) / timeline.scale();
      timeline.show(timeline.from + by, timeline.to + by);
    }
    this.pointers.set(event.pointerId, now);
  }

  up(event) {
    const there = this.pointers.delete(event.pointerId), { timeline } = this;
    if (!this.pointers.size) this.box.classList.remove("drag", "marking");
    if (!there || event.type !== "pointerup" || this.moved > 3) return;
    const point = this.at(event), item = timeline.find(point.x, point.y);
    timeline.pick(item);
    if (item && item.lane.group === "steps") {
      const { stage, step } = item.lane.items[item.i];
      timeline.address = `step=${encodeURIComponent(timeline.data.meta.stages[stage].name)}.${step + 1}`;
      timeline.keep();
    }
  }

  hover(point) {
    const { timeline } = this, item = timeline.find(point.x, point.y), tip = timeline.tip;
    tip.hidden = !item;
    if (!item) return;
    tip.textContent = timeline.detail.lines(item).join("\n");
    const room = this.box.clientWidth - tip.offsetWidth - 8;
    tip.style.left = Math.max(4, Math.min(point.x + 14, room)) + "px";
    const below = point.y + 18, over = this.box.scrollTop + this.box.clientHeight;
    tip.style.top = (below + tip.offsetHeight > over ? Math.max(0, point.y - tip.offsetHeight - 10) : below) + "px";
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target !== this.box) return;
    const timeline = this.timeline, other = () => timeline.selected && timeline.partners(timeline.selected)[0];
    const acts = {
      ArrowLeft: () => timeline.pan(-0.15), ArrowRight: () => timeline.pan(0.15), a: () => timeline.pan(-0.15), d: () => timeline.pan(0.15),
      w: () => timeline.zoom(0.6, timeline.pointed), s: () => timeline.zoom(1 / 0.6, timeline.pointed),
      ArrowUp: () => timeline.climb(-1), ArrowDown: () => timeline.climb(1),
      "+": () => timeline.zoom(0.6), "=": () => timeline.zoom(0.6), "-": () => timeline.zoom(1 / 0.6), "_": () => timeline.zoom(1 / 0.6),
      0: () => timeline.show(0, timeline.whole), 1: () => timeline.showStages(), Home: () => timeline.pan(-1e9), End: () => timeline.pan(1e9),
      n: () => timeline.step(1), p: () => timeline.step(-1), f: () => timeline.full(), t: () => timeline.selectShown(),
      z: () => (timeline.span ? timeline.show(timeline.span[0], timeline.span[1]) : timeline.focusSelected()),
      "/": () => timeline.search.focus(), "?": () => document.getElementById("timeline-keys").showModal(),
      Enter: () => { const partner = other(); if (partner) timeline.pick(partner, true); },
      Escape: () => {
        if (!timeline.selected && !timeline.span && !timeline.hits) return timeline.full(false);
        timeline.pick(null);
        timeline.select();
        timeline.search.clear();
        timeline.highlight(null);
      },
    };
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (!Object.hasOwn(acts, key)) return;
    event.preventDefault();
    acts[key]();
  }
}
