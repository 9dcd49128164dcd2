// The whole run in a strip: how busy the GPUs are, the stages, and the part in view, which can be dragged.
const STRIP = 34, BANDS = 5;

class Minimap {
  constructor(timeline) {
    this.timeline = timeline;
    this.canvas = document.getElementById("minimap");
    this.pen = this.canvas.getContext("2d", { alpha: false });
    this.bins = this.busy(1500);
    let held = false;
    const go = (event) => {
      const { painter, whole, from, to } = timeline, at = (event.clientX - this.canvas.getBoundingClientRect().left - painter.left) / this.wide() * whole;
      timeline.show(at - (to - from) / 2, at + (to - from) / 2);
    };
    this.canvas.addEventListener("pointerdown", (event) => { held = true; this.canvas.setPointerCapture(event.pointerId); go(event); });
    this.canvas.addEventListener("pointermove", (event) => { if (held) go(event); });
    for (const end of ["pointerup", "pointercancel"]) this.canvas.addEventListener(end, () => { held = false; });
    this.canvas.addEventListener("dblclick", () => timeline.show(0, timeline.whole));
  }

  wide() { return Math.max(1, this.timeline.painter.width - this.timeline.painter.left); }

  // The occupied share of each of `n` parts of the run, as a mean of the GPUs.
  busy(n) {
    const { data, whole } = this.timeline, bins = new Float64Array(n), size = whole / n;
    for (const lane of data.lanes) {
      if (lane.group !== "streams") continue;
      for (let i = 0; i < lane.n; i++) {
        const start = lane.start[i], end = start + lane.length[i], share = (lane.taken[i + 1] - lane.taken[i]) / Math.max(1, lane.length[i]);
        for (let bin = Math.floor(start / size); bin < n && bin * size < end; bin++) bins[bin] += share * (Math.min(end, (bin + 1) * size) - Math.max(start, bin * size)) / size;
      }
    }
    const gpus = Math.max(1, data.meta.sections.filter((section) => section.kind === "gpu").length);
    return bins.map((busy) => Math.min(1, busy / gpus));
  }

  // Draws the strip once; a frame then adds the part in view.
  resize() {
    const { painter, whole, data } = this.timeline, ratio = window.devicePixelRatio || 1, wide = this.wide(), { left } = painter;
    this.canvas.style.height = STRIP + "px";
    this.canvas.style.width = painter.width + "px";
    this.canvas.width = Math.max(1, Math.round(painter.width * ratio));
    this.canvas.height = STRIP * ratio;
    const pen = this.pen;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.fillStyle = painter.panel;
    pen.fillRect(0, 0, painter.width, STRIP);
    pen.fillStyle = painter.soft;
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    pen.fillText("whole run", 8, STRIP / 2, left - 14);
    pen.fillStyle = painter.busyColor;
    this.bins.forEach((busy, i) => {
      const x = Math.floor(left + wide * i / this.bins.length), height = Math.max(1.5, (STRIP - BANDS - 4) * busy);
      if (busy > 0) pen.fillRect(x, STRIP - BANDS - 1 - height, Math.ceil(wide / this.bins.length), height);
    });
    data.meta.stages.forEach((stage, s) => {
      pen.fillStyle = painter.stageColor(s);
      for (const [start, length] of stage.at) pen.fillRect(left + wide * start / whole, STRIP - BANDS, Math.max(1, wide * length / whole), BANDS);
    });
    this.strip = new OffscreenCanvas(this.canvas.width, this.canvas.height);
    this.strip.getContext("2d").drawImage(this.canvas, 0, 0);
  }

  draw() {
    const { painter, whole, from, to } = this.timeline, wide = this.wide(), pen = this.pen, at = (t) => painter.left + wide * Math.max(0, Math.min(1, t / whole));
    pen.drawImage(this.strip, 0, 0, painter.width, STRIP);
    pen.fillStyle = painter.bg;
    pen.globalAlpha = 0.5;
    pen.fillRect(painter.left, 0, at(from) - painter.left, STRIP);
    pen.fillRect(at(to), 0, painter.left + wide - at(to), STRIP);
    pen.globalAlpha = 1;
    pen.strokeStyle = painter.accent;
    pen.lineWidth = 2;
    pen.strokeRect(at(from) + 1, 1, Math.max(2, at(to) - at(from) - 2), STRIP - 2);
  }
}
