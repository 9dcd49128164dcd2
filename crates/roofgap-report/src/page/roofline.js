// The roofline: colour by family or stage, filters, and a tip that does not move the page.
class Roofline {
  constructor(timeline) {
    this.timeline = timeline;
    this.section = document.getElementById("roofline");
    this.dots = this.section ? [...this.section.querySelectorAll(".dot")] : [];
    if (!this.dots.length) return;
    this.tip = element("div", null, { id: "roofline-tip", className: "tip", ariaLive: "polite", hidden: true });
    document.body.append(this.tip);
    this.tools();
    this.paint();
    this.labels();
    addEventListener("resize", () => this.labels());
    for (const drawing of this.section.querySelectorAll("svg")) this.connect([...drawing.querySelectorAll(".dot")]);
  }

  stageName(dot) { return dot.dataset.stage === undefined ? "no stage" : kernelData.scopes[Number(dot.dataset.stage) + 1]; }

  tools() {
    const select = (label, values) => {
      const made = element("select", null, { ariaLabel: label });
      for (const value of values) made.append(new Option(value, value));
      made.addEventListener("change", () => this.paint());
      this.bar.append(element("label", label + " ", {}, made));
      return made;
    };
    const all = (of) => ["all", ...new Set(this.dots.map(of))];
    this.bar = element("div", null, { className: "tools" });
    this.color = select("Colour by", ["family", "stage"]);
    this.stage = select("Stage", all((dot) => this.stageName(dot)));
    this.family = select("Family", all((dot) => dot.dataset.family).sort((a, b) => (a !== "all") - (b !== "all") || a.localeCompare(b)));
    this.search = element("input", null, { type: "search", placeholder: "part of a name", ariaLabel: "Search the dots", autocomplete: "off" });
    this.search.addEventListener("input", () => this.paint());
    this.legend = element("ul", null, { className: "legend" });
    this.bar.append(this.search);
    this.section.querySelector("h2").after(this.bar, this.legend);
  }

  paint() {
    const byStage = this.color.value === "stage", words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean), used = new Map();
    for (const dot of this.dots) {
      const family = [...dot.classList].find((name) => name.startsWith("f-")) || dot.dataset.own, stage = this.stageName(dot);
      dot.dataset.own = family;
      const off = this.stage.value !== "all" && stage !== this.stage.value || this.family.value !== "all" && dot.dataset.family !== this.family.value
        || !words.every((word) => dot.dataset.kernel.toLowerCase().includes(word));
      const color = !byStage ? family : dot.dataset.stage === undefined ? "f-other" : `s-${dot.dataset.stage % STAGE_COLORS}`;
      dot.setAttribute("class", `dot ${color}${off ? " off" : ""}`);
      if (!off) used.set(byStage ? stage : dot.dataset.family, color);
    }
    const item = ([name, color]) => element("li", null, {}, element("i", null, { className: color }), name);
    this.legend.replaceChildren(...[...used].sort().map(item));
  }

  // Hides a label that would lie on another one: roofs come first, then stages, then axes. The tip of what it names has it.
  labels() {
    for (const drawing of this.section.querySelectorAll("svg")) {
      const taken = [], order = [".roof-name", ".stage-name", "text"];
      for (const label of new Set(order.flatMap((kind) => [...drawing.querySelectorAll(kind)]))) {
        const { left, right, top, bottom } = label.getBoundingClientRect();
        const free = taken.every((other) => right <= other.left || other.right <= left || bottom <= other.top || other.bottom <= top);
        label.style.visibility = free ? "" : "hidden";
        if (free) taken.push({ left, right, top, bottom });
      }
    }
  }

  // The arrow keys go from dot to dot; one that has the focus or the pointer names its kernel, and Enter shows it in the timeline.
  connect(dots) {
    const { timeline, tip } = this;
    dots.forEach((dot) => {
      const name = timeline ? timelineName(dot.dataset.kernel) : -1, title = dot.querySelector("title"), text = title.textContent;
      title.remove(); // in place of the browser's own tip
      const go = () => {
        if (name < 0) return;
        tip.hidden = true;
        timeline.kernel(name, dot.dataset.stage === undefined ? undefined : Number(dot.dataset.stage), dot.dataset.shape);
      };
      const tell = () => {
        const box = dot.getBoundingClientRect();
        tip.textContent = text;
        tip.hidden = false;
        tip.style.left = Math.max(4, Math.min(box.right + 8, innerWidth - tip.offsetWidth - 8)) + "px";
        tip.style.top = Math.max(4, Math.min(box.bottom + 8, innerHeight - tip.offsetHeight - 8)) + "px";
      };
      const hush = () => { tip.hidden = true; };
      for (const [event, act] of [["click", go], ["pointerenter", tell], ["focus", tell], ["pointerleave", hush], ["blur", hush]]) dot.addEventListener(event, act);
      dot.addEventListener("keydown", (event) => {
        const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
        if (by) {
          const shown = dots.filter((other) => !other.classList.contains("off")), next = shown[(shown.indexOf(dot) + by + shown.length) % shown.length];
          dot.setAttribute("tabindex", -1);
          next.setAttribute("tabindex", 0);
          next.focus();
        } else if (event.key === "Enter" || event.key === " ") go();
        else return;
        event.preventDefault();
      });
    });
  }
}
