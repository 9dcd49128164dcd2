// Flame graphs: by ranges and operators as the page has it, and by stage, family and kernel from the rows of the kernel table.
const LEAST_BOX = 0.0025;

// A box that is selected takes the whole width, and gives it back when selected again.
document.addEventListener("click", (event) => {
  const box = event.target.closest(".flame button");
  if (!box) return;
  const root = box.closest(".flame"), item = box.parentElement, again = item.dataset.zoom === "yes";
  for (const other of root.querySelectorAll("li")) { other.classList.remove("wide", "away"); delete other.dataset.zoom; }
  if (again) return;
  item.dataset.zoom = "yes";
  for (let at = item; at && at !== root; at = at.parentElement) {
    if (at.tagName !== "LI") continue;
    at.classList.add("wide");
    for (const other of at.parentElement.children) if (other !== at) other.classList.add("away");
  }
});

// A level of boxes {name, ns, color, inside}; those that are too narrow are one.
function flameLevel(boxes, parent, all) {
  boxes.sort((a, b) => b.ns - a.ns);
  const wide = boxes.filter((box) => box.ns >= all * LEAST_BOX), rest = boxes.slice(wide.length);
  if (rest.length) wide.push({ name: `${formatCount(rest.length)} more`, ns: rest.reduce((sum, box) => sum + box.ns, 0), color: "f-other", inside: [] });
  return element("ul", null, {}, ...wide.map((box) => {
    const numbers = `${formatTime(box.ns)} (${formatPercent(box.ns, all)})`;
    const button = element("button", box.name + " ", { type: "button", className: box.color, title: `${box.name}: ${numbers}` }, element("small", numbers));
    const item = element("li", null, {}, button, ...(box.inside.length ? [flameLevel(box.inside, box.ns, all)] : []));
    item.style.width = `${100 * box.ns / Math.max(1, parent)}%`;
    return item;
  }));
}

// Adds the graph below the kernel table; it is drawn when it is opened.
function addFlame(data) {
  const place = document.getElementById("kernel-more"), scopes = data.scopes.length > 1 ? data.scopes.map((_, i) => i).slice(1) : [0];
  if (!place || !data.rows.some((rows) => rows.length)) return;
  const graph = element("details", null, { id: "kernel-flame" }, element("summary", "Kernel time by stage, family and kernel"));
  graph.addEventListener("toggle", () => {
    const boxes = scopes.map((scope, i) => {
      const families = new Map();
      for (const row of data.rows[scope]) {
        const name = data.names[row[0]], family = families.get(name.family) || { name: data.families[name.family], ns: 0, color: `f-${name.color}`, inside: [] };
        family.ns += row[2];
        family.inside.push({ name: name.short, ns: row[2], color: `f-${name.color}`, inside: [] });
        families.set(name.family, family);
      }
      const inside = [...families.values()];
      return { name: data.scopes[scope], ns: inside.reduce((sum, family) => sum + family.ns, 0), color: scope ? `s-${i % STAGE_COLORS}` : "f-range", inside };
    });
    const all = boxes.reduce((sum, box) => sum + box.ns, 0);
    graph.append(element("div", null, { className: "scroll" }, element("div", null, { className: "flame" }, flameLevel(boxes, all, all))));
  }, { once: true });
  place.after(graph);
}
