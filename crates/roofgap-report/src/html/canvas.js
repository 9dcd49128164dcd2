// Draws the lanes in view. The cost grows with the pixels, not with the items.
const AXIS = 22, GAP = 3, TITLE = 15;
const HEIGHTS = { stages: 18, ranges: 17, operators: 15, calls: 20, streams: 26 };
const TITLES = { stages: "Stages", ranges: "Ranges", operators: "Operators", calls: "CPU: calls that launch, copy, set or wait", streams: "GPU" };

class Painter {
  constructor(canvas, data) {
    this.canvas = canvas;
    this.data = data;
    this.pen = canvas.getContext("2d");
    this.titles = [];
    let y = AXIS, group = "";
    for (const lane of data.lanes) {
      if (lane.group !== group) {
        group = lane.group;
        y += GAP;
        this.titles.push({ text: TITLES[group], y });
        y += TITLE;
      }
      lane.top = y;
      lane.height = HEIGHTS[group];
      y += lane.height + GAP;
    }
    this.height = y + 4;
    this.width = 0;
    this.left = 0;
    this.readColors();
  }

  readColors() {
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    this.text = color("--text");
    this.soft = color("--soft");
    this.line = color("--line");
    this.panel = color("--panel");
    this.accent = color("--accent");
    this.colors = this.data.meta.classes.map((name) => color("--c-" + (name === "copy/layout" ? "layout" : name)));
    this.merged = color("--c-merged");
    this.dark = ["range", "operator"].map((name) => this.data.meta.classes.indexOf(name));
  }

  resize() {
    const ratio = window.devicePixelRatio || 1;
    this.width = this.canvas.parentElement.clientWidth;
    this.left = this.width > 700 ? 132 : 0; // room for the names of lanes, where there is any
    this.canvas.style.height = this.height + "px";
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  }

  colorOf(name) {
    return name < 0 ? this.merged : this.colors[this.data.meta.names[name][1]];
  }

  draw(view) {
    const pen = this.pen;
    pen.globalAlpha = 1;
    pen.fillStyle = this.panel;
    pen.fillRect(0, 0, this.width, this.height);
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    pen.save();
    pen.beginPath();
    pen.rect(this.left, 0, this.width - this.left, this.height);
    pen.clip();
    this.axis(view);
    for (const lane of this.data.lanes) this.lane(lane, view);
    pen.globalAlpha = 1;
    if (view.selected) this.selection(view);
    pen.restore();
    for (const title of this.titles) this.label(title.text, title.y + TITLE / 2 - 1, true);
    if (this.left) for (const lane of this.data.lanes) this.label(lane.label, lane.top + lane.height / 2, false);
  }

  label(text, y, strong) {
    const pen = this.pen;
    pen.font = (strong ? "600 " : "") + "11px system-ui, sans-serif";
    pen.fillStyle = this.soft;
    pen.textAlign = "left";
    pen.fillText(text, 6, y, strong ? this.width - 12 : this.left - 10);
  }

  axis(view) {
    const pen = this.pen;
    const raw = (view.to - view.from) / Math.max(2, (this.width - this.left) / 110);
    const power = Math.pow(10, Math.floor(Math.log10(raw)));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw);
    pen.textAlign = "left";
    pen.strokeStyle = this.line;
    pen.lineWidth = 1;
    pen.beginPath();
    const digits = Math.max(0, -Math.floor(Math.log10(step / 1e6)));
    for (let t = Math.ceil(view.from / step) * step; t <= view.to; t += step) {
      const x = Math.round(view.x(t)) + 0.5;
      pen.moveTo(x, 0);
      pen.lineTo(x, this.height);
      pen.fillStyle = this.soft;
      pen.fillText((t / 1e6).toFixed(Math.min(6, digits)) + " ms", x + 4, AXIS / 2);
    }
    pen.stroke();
  }

  lane(lane, view) {
    const { start, length, name, taken, reach, n } = lane;
    const scale = view.scale(), pixel = 1 / scale;
    let i = after(reach, view.from, 0, n);
    const end = after(start, view.to, i, n);
    const labels = lane.height >= 15;
    while (i < end) {
      const x = view.x(start[i]), wide = length[i] * scale;
      if (wide >= 1.5) {
        this.box(lane, i, x, wide, view, labels);
        i += 1;
        continue;
      }
      // All items that start in this column of pixels.
      const left = Math.floor(x), until = view.from + (left + 1 - this.left) * pixel;
      const next = Math.max(i + 1, after(start, until, i, end));
      const share = Math.min(1, (taken[next] - taken[i]) / pixel);
      this.column(lane, i, next, left, share, view);
      i = next;
    }
  }

  // Draws a single item.
  box(lane, i, x, wide, view, labels) {
    const pen = this.pen, name = lane.name[i];
    const left = Math.max(this.left - 2, x), right = Math.min(this.width + 2, x + Math.max(1, wide));
    pen.globalAlpha = view.mark >= 0 && name !== view.mark && lane.group === "streams" ? 0.15 : 1;
    pen.fillStyle = lane.classes ? this.colors[lane.classes[i]] : this.colorOf(name);
    let top = lane.top, height = lane.height;
    if (lane.count && lane.count[i] > 1) {
      height *= Math.max(0.12, Math.min(1, (lane.taken[i + 1] - lane.taken[i]) / lane.length[i]));
      top += lane.height - height;
    }
    // A thin gap separates neighbours.
    pen.fillRect(left, top, right - left > 4 ? right - left - 0.8 : right - left, height);
    if (labels && right - left > 34) {
      const text = this.nameOf(lane, i);
      const from = left + 4;
      pen.save();
      pen.beginPath();
      pen.rect(left, lane.top, right - left - 3, lane.height);
      pen.clip();
      pen.fillStyle = name >= 0 && this.dark.includes(this.data.meta.names[name][1]) ? this.text : "#fff";
      pen.textAlign = "left";
      pen.fillText(text, from, lane.top + lane.height / 2 + 0.5);
      pen.restore();
    }
  }

  // Draws a column of pixels shared by several items: its height is the occupied share, its colour that of a long item.
  column(lane, from, to, left, share, view) {
    const pen = this.pen, stride = Math.max(1, (to - from) >> 4);
    let longest = from, marked = view.mark < 0 || lane.group !== "streams";
    for (let i = from; i < to; i += stride) {
      if (lane.length[i] > lane.length[longest]) longest = i;
      if (!marked && lane.name[i] === view.mark) { marked = true; longest = i; break; }
    }
    pen.globalAlpha = marked ? 1 : 0.15;
    pen.fillStyle = lane.classes ? this.colors[lane.classes[longest]] : this.colorOf(lane.name[longest]);
    const height = lane.group === "ranges" || lane.group === "stages" ? lane.height : Math.max(2, lane.height * share);
    pen.fillRect(left, lane.top + lane.height - height, 1, height);
  }

  nameOf(lane, i) {
    const name = lane.name[i];
    if (lane.text) return lane.text[i];
    if (name < 0) return lane.count ? formatCount(lane.count[i]) + " merged" : "unnamed";
    return this.data.meta.names[name][0];
  }

  selection(view) {
    const pen = this.pen, { lane, i } = view.selected;
    const frame = (lane, i) => {
      const x = view.x(lane.start[i]), wide = Math.max(2, view.x(lane.start[i] + lane.length[i]) - x);
      pen.strokeStyle = this.text;
      pen.lineWidth = 2;
      pen.strokeRect(Math.max(-3, x - 1), lane.top - 1, Math.min(this.width + 6, wide + 2), lane.height + 2);
      return x;
    };
    const x = frame(lane, i);
    for (const other of view.partners(view.selected)) {
      const y = frame(other.lane, other.i);
      pen.strokeStyle = this.accent;
      pen.lineWidth = 1.5;
      pen.beginPath();
      pen.moveTo(x, lane.top + (lane.top < other.lane.top ? lane.height : 0));
      pen.lineTo(y, other.lane.top + (lane.top < other.lane.top ? 0 : other.lane.height));
      pen.stroke();
    }
  }
}
