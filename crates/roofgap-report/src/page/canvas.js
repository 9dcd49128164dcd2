// Draws the lanes in view. The cost grows with the pixels, not with the items.
const AXIS = 22, GUTTER = 136, NARROW = 72, STAGE_COLORS = 6;

class Painter {
  constructor(canvas, axis, data) {
    this.canvas = canvas;
    this.axisCanvas = axis;
    this.data = data;
    this.pen = canvas.getContext("2d", { alpha: false });
    this.axisPen = axis.getContext("2d", { alpha: false });
    this.width = 0;
    this.height = 0;
    this.left = 0;
    this.readColors();
  }

  readColors() {
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    for (const name of ["text", "soft", "line", "panel", "accent", "bg"]) this[name] = color("--" + name);
    this.colors = this.data.meta.classes.map((name) => color("--c-" + (name === "copy/layout" ? "layout" : name)));
    for (let i = 0; i < STAGE_COLORS; i++) this.colors.push(color("--s-" + i)); // after the classes
    this.busyColor = color("--busy");
    this.inks = this.colors.map((background) => this.inkOn(background));
    this.merged = color("--c-merged");
  }

  stageColor(stage) { return this.colors[this.data.meta.classes.length + stage % STAGE_COLORS]; }

  // Black or white, whichever is easier to read on a colour.
  inkOn(color) {
    const digits = color.replace("#", ""), full = digits.length === 3 ? [...digits].map((d) => d + d).join("") : digits;
    const part = (at) => { const v = parseInt(full.slice(at, at + 2), 16) / 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
    const light = 0.2126 * part(0) + 0.7152 * part(2) + 0.0722 * part(4);
    return light > 0.179 ? "#000" : "#fff";
  }

  resize(height) {
    const ratio = window.devicePixelRatio || 1;
    this.height = height;
    this.width = this.canvas.parentElement.clientWidth;
    this.left = this.width > 700 ? GUTTER : NARROW; // room for the names of lanes
    for (const [canvas, pen, tall] of [[this.canvas, this.pen, height], [this.axisCanvas, this.axisPen, AXIS]]) {
      canvas.style.height = tall + "px";
      canvas.style.width = this.width + "px";
      canvas.width = Math.max(1, Math.round(this.width * ratio));
      canvas.height = Math.max(1, Math.round(tall * ratio));
      pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    }
    this.stack = new Float32Array(Math.ceil(this.width) + 4);
  }

  colorOf(name) {
    return name < 0 ? this.merged : this.colors[this.data.meta.names[name][1]];
  }

  // Draws the lanes between `from` and `to` px of the canvas; all of them for paper.
  draw(view, from = 0, to = Infinity) {
    const pen = this.pen;
    pen.globalAlpha = 1;
    pen.fillStyle = this.panel;
    pen.fillRect(0, from, this.width, Math.min(to, this.height) - from);
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    pen.save();
    pen.beginPath();
    pen.rect(this.left, 0, this.width - this.left, this.height);
    pen.clip();
    this.axis(view);
    let section = -2;
    for (const lane of this.data.lanes) {
      if (!lane.n || !lane.visible || lane.top + lane.height < from || lane.top > to) continue;
      if (lane.group === "idle" && lane.section !== section) {
        section = lane.section;
        this.stack.fill(0);
      }
      if (lane.group === "idle") this.idle(lane, view);
      else this.lane(lane, view);
      if (lane.group === "steps") this.stepNumbers(lane, view);
    }
    pen.globalAlpha = 1;
    if (view.span) this.span(view);
    if (view.selected && view.selected.lane.visible) this.selection(view);
    pen.restore();
    this.labels(from, to);
  }

  labels(from, to) {
    const pen = this.pen, sections = this.data.meta.sections;
    pen.fillStyle = this.soft;
    pen.textAlign = "left";
    let last = null;
    for (const lane of this.data.lanes) {
      if (!lane.visible || lane.top + lane.height < from || lane.top > to || lane.height < 9) continue;
      const key = `${lane.section} ${lane.group}`, first = key !== last;
      last = key;
      let text = lane.group === "streams" ? lane.label.replace(sections[lane.section].label + " ", "") : lane.label;
      if (["idle", "calls", "stacks", "ranges", "operators"].includes(lane.group)) text = first ? lane.group : "";
      if (text) pen.fillText(text, 8, lane.top + lane.height / 2, this.left - 14);
    }
  }

  axis(view) {
    const raw = (view.to - view.from) / Math.max(2, (this.width - this.left) / 110);
    const power = Math.pow(10, Math.floor(Math.log10(raw)));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw);
    const digits = Math.max(0, -Math.floor(Math.log10(step / 1e6)));
    const pen = this.pen, axis = this.axisPen;
    axis.fillStyle = this.panel;
    axis.fillRect(0, 0, this.width, AXIS);
    axis.font = "11px system-ui, sans-serif";
    axis.textBaseline = "middle";
    pen.strokeStyle = axis.strokeStyle = this.line;
    pen.lineWidth = axis.lineWidth = 1;
    pen.beginPath();
    axis.beginPath();
    for (let t = Math.ceil(view.from / step) * step; t <= view.to; t += step) {
      const x = Math.round(view.x(t)) + 0.5;
      if (x < this.left) continue;
      pen.moveTo(x, 0);
      pen.lineTo(x, this.height);
      axis.moveTo(x, 0);
      axis.lineTo(x, AXIS);
      axis.fillStyle = this.soft;
      axis.fillText((t / 1e6).toFixed(Math.min(6, digits)) + " ms", x + 4, AXIS / 2);
    }
    pen.stroke();
    axis.stroke();
    if (view.span) {
      axis.fillStyle = this.accent;
      const from = Math.max(this.left, view.x(view.span[0])), to = Math.min(this.width, view.x(view.span[1]));
      if (to > from) axis.fillRect(from, AXIS - 3, to - from, 3);
    }
  }

  // Draws items that are wide enough as boxes, and the others as columns of pixels: what is painted is the occupied time.
  lane(lane, view) {
    const { start, length, taken, reach, n } = lane;
    const scale = view.scale(), pixel = 1 / scale;
    let i = after(reach, view.from, 0, n), column = 0, first = i, last = i, occupied = 0;
    const end = after(start, view.to, i, n);
    const flush = () => {
      if (occupied > 0) this.column(lane, first, last, column, Math.min(1, occupied / pixel), view);
      occupied = 0;
    };
    const add = (at, time, from, to) => {
      if (at !== column) { flush(); column = at; first = from; }
      last = to;
      occupied += time;
    };
    while (i < end) {
      const x = view.x(start[i]), wide = length[i] * scale;
      if (wide >= 1.5) {
        this.box(lane, i, x, wide, view);
        i += 1;
        continue;
      }
      // All narrow items that start in this column. The last may reach into the next ones.
      const left = Math.floor(x), until = view.time(left + 1);
      let next = Math.max(i + 1, after(start, until, i, end));
      for (let k = i + 1; k < next && taken[next] - taken[i] > pixel; k++) if (length[k] * scale >= 1.5) next = k;
      const tail = next - 1, over = Math.max(0, start[tail] + length[tail] - until);
      const beyond = over && over / length[tail] * (taken[next] - taken[tail]);
      add(left, taken[next] - taken[i] - beyond, i, next);
      if (beyond) add(left + 1, Math.min(1, pixel / over) * beyond, tail, next);
      if (over > pixel) add(left + 2, (1 - pixel / over) * beyond, tail, next);
      i = next;
    }
    flush();
  }

  // Draws the gaps of one cause: in each column of pixels its share of time, on top of the causes before it.
  idle(lane, view) {
    const { start, length, taken, reach, n } = lane, pen = this.pen, pixel = 1 / view.scale();
    let i = after(reach, view.from, 0, n);
    const end = after(start, view.to, i, n), right = Math.min(this.width, Math.ceil(view.x(n ? reach[n - 1] : 0)));
    pen.globalAlpha = 1;
    pen.fillStyle = this.colorOf(lane.name[Math.min(i, n - 1)]);
    // The occupied time before a moment: items of a lane do not overlap.
    const until = (at, t) => {
      while (at < end && start[at] + length[at] <= t) at += 1;
      const inside = at < end && t > start[at] ? (t - start[at]) / length[at] * (taken[at + 1] - taken[at]) : 0;
      return [at, taken[at] + inside];
    };
    for (let x = Math.max(this.left, Math.floor(view.x(i < end ? start[i] : view.to))); x < right; x++) {
      const from = view.time(x);
      let before, now;
      i = after(reach, from, i, end); // not one by one: a column may hold many
      [i, before] = until(i, from);
      const next = after(reach, from + pixel, i, end);
      [, now] = until(next, from + pixel);
      const height = lane.height * Math.min(1, (now - before) / pixel), below = this.stack[x];
      if (height <= 0) {
        if (i >= end) break;
        x = Math.max(x, Math.floor(view.x(start[i])) - 1);
        continue;
      }
      pen.fillRect(x, lane.top + lane.height - below - height, 1, height);
      this.stack[x] = below + height;
    }
    for (let k = after(reach, view.from, 0, n); k < end && end - k < 400; k++) {
      const x = Math.max(this.left, view.x(start[k])), wide = Math.min(this.width, view.x(start[k] + length[k])) - x;
      if (wide < 60) continue;
      pen.fillStyle = this.inkOn(this.colorOf(lane.name[k]));
      pen.textAlign = "left";
      pen.fillText(this.nameOf(lane, k), x + 4, lane.top + lane.height / 2, wide - 8);
    }
  }

  // Draws a single item.
  box(lane, i, x, wide, view) {
    const pen = this.pen, name = lane.name[i];
    const left = Math.max(this.left - 2, x), right = Math.min(this.width + 2, x + Math.max(1, wide));
    pen.globalAlpha = this.hidden(lane, name, view) ? 0.13 : 1;
    const color = lane.classes ? lane.classes[i] : name < 0 ? -1 : this.data.meta.names[name][1];
    pen.fillStyle = color < 0 ? this.merged : this.colors[color];
    let top = lane.top, height = lane.height;
    if (lane.count && lane.count[i] > 1) {
      height = Math.max(1, height * Math.min(1, (lane.taken[i + 1] - lane.taken[i]) / lane.length[i]));
      top += lane.height - height;
    }
    pen.fillRect(left, top, right - left, height);
    if (right - left > 4) { // a thin line separates neighbours
      pen.fillStyle = this.panel;
      pen.globalAlpha *= 0.6;
      pen.fillRect(right - 0.8, top, 0.8, height);
      pen.globalAlpha /= 0.6;
    }
    if (lane.height < 12 || right - left <= 30 || lane.group === "steps") return;
    pen.save();
    pen.beginPath();
    pen.rect(left, lane.top, right - left - 3, lane.height);
    pen.clip();
    pen.fillStyle = color < 0 ? this.inkOn(this.merged) : this.inks[color];
    pen.textAlign = "left";
    pen.fillText(this.nameOf(lane, i), left + 4, lane.top + lane.height / 2 + 0.5);
    pen.restore();
  }

  // Numbers steps, never in part: every one that has room, and of narrow ones every tenth, which reaches over its neighbours.
  stepNumbers(lane, view) {
    const pen = this.pen, from = after(lane.reach, view.from, 0, lane.n), to = after(lane.start, view.to, from, lane.n);
    let room = this.left;
    pen.globalAlpha = 1;
    pen.fillStyle = this.text;
    pen.textAlign = "left";
    for (let i = from; i < to; i++) {
      const left = Math.max(this.left, view.x(lane.start[i])) + 4, wide = pen.measureText(lane.text[i]).width;
      const fits = left + wide <= view.x(lane.start[i] + lane.length[i]);
      if (left < room || !fits && (lane.items[i].step + 1) % 10) continue;
      pen.fillText(lane.text[i], left, lane.top + lane.height / 2 + 0.5);
      room = left + wide + 6;
    }
  }

  hidden(lane, name, view) {
    return view.hits !== null && !lane.text && lane.group !== "idle" && !(name >= 0 && view.hits[name]);
  }

  // Draws a column of pixels shared by several items: its height is the occupied share, its colour that of a long item.
  column(lane, from, to, left, share, view) {
    const pen = this.pen, stride = view.hits ? 1 : Math.max(1, (to - from) >> 4);
    let longest = from, shown = !view.hits || !this.hidden(lane, -1, view);
    for (let i = from; i < to; i += stride) {
      if (lane.length[i] > lane.length[longest]) longest = i;
      if (!shown && lane.name[i] >= 0 && view.hits[lane.name[i]]) { shown = true; longest = i; break; }
    }
    pen.globalAlpha = shown ? 1 : 0.13;
    pen.fillStyle = lane.classes ? this.colors[lane.classes[longest]] : this.colorOf(lane.name[longest]);
    const full = ["ranges", "stages", "steps", "graphs"].includes(lane.group);
    const height = full ? lane.height : Math.max(1, lane.height * share);
    pen.fillRect(left, lane.top + lane.height - height, 1, height);
  }

  nameOf(lane, i) {
    const name = lane.name[i];
    if (lane.text) return lane.text[i];
    if (name < 0) return lane.count ? formatCount(lane.count[i]) + " merged" : "unnamed";
    return this.data.meta.names[name][0];
  }

  // Shades the time outside of the selected span.
  span(view) {
    const pen = this.pen, from = view.x(view.span[0]), to = view.x(view.span[1]);
    pen.globalAlpha = 0.55;
    pen.fillStyle = this.bg;
    if (from > this.left) pen.fillRect(this.left, 0, from - this.left, this.height);
    if (to < this.width) pen.fillRect(to, 0, this.width - to, this.height);
    pen.globalAlpha = 1;
    pen.fillStyle = this.accent;
    for (const x of [from, to]) pen.fillRect(x - 1, 0, 2, this.height);
  }

  selection(view) {
    const { lane, i } = view.selected, pen = this.pen;
    const frame = (lane, i) => {
      const x = view.x(lane.start[i]), wide = Math.max(2, view.x(lane.start[i] + lane.length[i]) - x);
      pen.strokeStyle = this.text;
      pen.lineWidth = 2;
      pen.strokeRect(Math.max(-3, x - 1), lane.top - 1, Math.min(this.width + 6, wide + 2), lane.height + 2);
    };
    frame(lane, i);
    for (const other of view.partners(view.selected)) {
      if (!other.lane.visible) continue;
      frame(other.lane, other.i);
      if (lane.group === "streams") this.arrow(other, view.selected, view);
      else this.arrow(view.selected, other, view);
    }
  }

  // Draws an arrow from a launch to its kernel. One of them beyond the view is told by its distance.
  arrow(call, op, view) {
    const pen = this.pen, down = call.lane.top < op.lane.top, edges = [this.left + 1, this.width - 1];
    const within = (t) => Math.max(edges[0], Math.min(edges[1], view.x(t)));
    const start = call.lane.start[call.i], begin = op.lane.start[op.i];
    const x1 = within(start), y1 = call.lane.top + (down ? call.lane.height : 0), x2 = within(begin), y2 = op.lane.top + (down ? 0 : op.lane.height), back = down ? -7 : 7;
    pen.strokeStyle = pen.fillStyle = this.accent;
    pen.lineWidth = 1.5;
    pen.beginPath();
    pen.moveTo(x1, y1);
    pen.bezierCurveTo(x1, (y1 + y2) / 2, x2, (y1 + y2) / 2, x2, y2 + back);
    pen.stroke();
    pen.beginPath();
    pen.moveTo(x2, y2);
    pen.lineTo(x2 - 4, y2 + back);
    pen.lineTo(x2 + 4, y2 + back);
    pen.fill();
    for (const [x, t, y] of [[x1, start, y1], [x2, begin, y2]]) {
      if (Math.abs(x - view.x(t)) < 2) continue;
      const away = t < view.from ? view.from - t : t - view.to;
      pen.textAlign = t < view.from ? "left" : "right";
      pen.fillText(t < view.from ? `← ${formatTime(away)}` : `${formatTime(away)} →`, x + (t < view.from ? 6 : -6), y + (y > (y1 + y2) / 2 ? -8 : 8));
    }
  }
}
