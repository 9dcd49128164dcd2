// Search in the names of the timeline, with next and previous.
class Search {
  constructor(timeline) {
    this.timeline = timeline;
    this.input = document.getElementById("timeline-search");
    this.output = document.getElementById("timeline-found");
    this.total = 0;
    this.input.addEventListener("input", () => this.start());
    this.input.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.go(event.shiftKey ? -1 : 1);
      else if (event.key === "Escape") { this.clear(); timeline.highlight(null); timeline.box.focus(); }
      else return;
      event.preventDefault();
    });
    document.getElementById("search-next").addEventListener("click", () => this.go(1));
    document.getElementById("search-previous").addEventListener("click", () => this.go(-1));
  }

  focus() {
    this.input.focus();
    this.input.select();
  }

  clear() {
    this.input.value = "";
    this.output.textContent = "";
    this.total = 0;
  }

  lanes() { return this.timeline.data.lanes.filter((lane) => !lane.items); }

  // Flags the names that contain every word; null without any.
  hits() {
    const words = this.input.value.toLowerCase().split(/\s+/).filter(Boolean), { timeline } = this;
    if (!words.length) return null;
    return Uint8Array.from(timeline.data.meta.names, ([name], i) => {
      const text = (name + " " + timeline.detail.fullName(i)).toLowerCase();
      return words.every((word) => text.includes(word)) ? 1 : 0;
    });
  }

  // Marks new names too.
  renew() {
    const hits = this.hits();
    if (hits) this.timeline.highlight(hits);
  }

  // Marks the names and counts their items.
  start() {
    const { timeline } = this, hits = this.hits();
    if (!hits) { this.clear(); return timeline.highlight(null); }
    timeline.pieces.restore();
    this.total = 0;
    for (const lane of this.lanes()) for (let i = 0; i < lane.n; i++) if (lane.name[i] >= 0 && hits[lane.name[i]]) this.total += 1;
    timeline.highlight(hits);
    this.output.textContent = this.total ? `${formatCount(this.total)} found` : "nothing found";
  }

  // Goes to the next or the previous hit after the selected item, in the order of time.
  go(by) {
    const { timeline } = this, hits = timeline.hits, lanes = this.lanes();
    if (!hits || !this.total) return;
    timeline.pieces.restore();
    const chosen = timeline.selected && lanes.includes(timeline.selected.lane) ? timeline.selected : null;
    const from = chosen ? [chosen.lane.start[chosen.i], lanes.indexOf(chosen.lane), chosen.i] : [by > 0 ? timeline.from : timeline.to, -1, 0];
    const compare = (a, b) => a[0] - b[0] || a[1] - b[1] || a[2] - b[2];
    const edge = (limit) => {
      let best = null;
      lanes.forEach((lane, at) => {
        const key = (i) => [lane.start[i], at, i];
        let i = limit === null ? (by > 0 ? 0 : lane.n - 1) : after(lane.start, limit[0] - 1, 0, lane.n) - (by > 0 ? 0 : 1);
        if (limit !== null && by < 0) i = after(lane.start, limit[0], 0, lane.n) - 1;
        for (; i >= 0 && i < lane.n; i += by) {
          if (lane.name[i] < 0 || !hits[lane.name[i]] || limit && compare(key(i), limit) * by <= 0) continue;
          if (!best || compare(key(i), best.key) * by < 0) best = { key: key(i), item: { lane, i } };
          break;
        }
      });
      return best;
    };
    const found = edge(from) || edge(null); // around the end
    if (!found) return;
    let number = 1;
    lanes.forEach((lane, at) => {
      for (let i = 0; i < lane.n && lane.start[i] <= found.key[0]; i++) {
        if (lane.name[i] >= 0 && hits[lane.name[i]] && compare([lane.start[i], at, i], found.key) < 0) number += 1;
      }
    });
    this.output.textContent = `${formatCount(number)} of ${formatCount(this.total)}`;
    timeline.pick(found.item, true);
    timeline.approach(found.item);
  }
}
