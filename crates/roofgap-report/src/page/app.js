// Connects the parts of the page.
const kernelData = JSON.parse(document.getElementById("kernel-data").textContent);
const timelineData = decodeTimeline();
const timeline = timelineData ? new Timeline(timelineData) : null;
const kernelTable = document.getElementById("kernel-table");
if (kernelTable) new KernelTable(kernelTable, kernelData, timeline);
sortTables();
new Roofline(timeline);
addFlame(kernelData);

// Finds a kernel by its short or its full name.
function timelineName(text) {
  const found = kernelData.names.find((name) => name.full === text || name.short === text);
  return found && found.timeline !== null ? found.timeline : -1;
}

for (const button of document.querySelectorAll(".jump")) {
  if (!timeline) { button.hidden = true; continue; }
  const stage = Number(button.dataset.stage);
  button.addEventListener("click", () => {
    const name = button.dataset.kernel === undefined ? -1 : timelineName(button.dataset.kernel);
    if (name >= 0) timeline.kernel(name, stage);
    else if (button.dataset.step !== undefined) timeline.stepOf(stage, Number(button.dataset.step));
    else timeline.stage(stage, true);
  });
}

for (const chart of document.querySelectorAll(".steps[data-stage]")) {
  if (!timeline) continue;
  const bars = [...chart.querySelectorAll("rect")], group = Number(chart.dataset.group);
  const stage = Number(chart.dataset.stage), lengths = timeline.data.meta.stages[stage].steps;
  let at = -1;
  // A bar of several steps links to the longest.
  const go = (bar) => {
    let best = bar * group;
    for (let i = best; i < Math.min(lengths.length, (bar + 1) * group); i++) if (lengths[i][1] > lengths[best][1]) best = i;
    timeline.stepOf(stage, best);
  };
  const mark = (bar) => {
    if (at >= 0) bars[at].classList.remove("at");
    at = Math.max(0, Math.min(bars.length - 1, bar));
    bars[at].classList.add("at");
    chart.setAttribute("aria-label", bars[at].textContent);
  };
  chart.addEventListener("click", (event) => {
    const frame = chart.querySelector("svg").getBoundingClientRect();
    mark(Math.floor((event.clientX - frame.left) / frame.width * bars.length));
    go(at);
  });
  chart.addEventListener("keydown", (event) => {
    if (event.key === "ArrowRight") mark(at + 1);
    else if (event.key === "ArrowLeft") mark(at - 1);
    else if (event.key === "Enter" && at >= 0) go(at);
    else return;
    event.preventDefault();
  });
}

for (const button of document.querySelectorAll(".copy")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const text = button.previousElementSibling.textContent;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // A page without access to the clipboard: select the text and copy that.
      getSelection().selectAllChildren(button.previousElementSibling);
      document.execCommand("copy");
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
}

addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details")) details.open = true;
});
document.documentElement.dataset.ready = "yes";
