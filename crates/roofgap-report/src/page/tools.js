// The toolbar of the timeline, and the list of its keys.
const KEYS = [
  ["W S, + −", "zoom in, zoom out"], ["A D, ← →", "move"], ["0", "show the whole run"], ["1", "show the stages"], ["F", "full screen, and back"],
  ["N P", "next and previous item of the lane"], ["↑ ↓", "lane above, lane below"], ["Enter", "from a launch to its kernel, and back"],
  ["Z", "zoom to the selected span or item"], ["T", "totals of the selected item, or of what is in view"], ["/", "search"],
  ["Enter, Shift Enter", "in the search: next, previous"], ["Esc", "clear the selection and the search, then leave the full screen"],
  ["Shift drag", "select a span of time"], ["Ctrl wheel, pinch", "zoom"],
];

const HELP = "Drag to move; hold Shift or press Select and drag to add up a span. Click the timeline, then turn the wheel to zoom, press F for the full screen or ? for all keys. "
  + "The strip above shows the whole run: how busy the GPUs are, and the stages. Where many items share a column of pixels, the height of the column is the share of time that is occupied. "
  + "The idle lane is the time in which the GPU ran nothing at all; the launch of the next operation decides on the cause, and the parts of a gap are drawn in the order wait, copy, launch. "
  + "Of the calls to the driver only those that launch, copy, set, wait or manage memory are drawn.";

function makeTools() {
  document.getElementById("timeline-help").textContent = HELP;
  document.getElementById("plot").ariaLabel = "Timeline: A and D move, W and S zoom, N and P go to the next and the previous item, question mark lists all keys";
  const button = (id, text, title, options = {}) => element("button", text, { id, title, type: "button", ariaLabel: title, ...options });
  const search = element("input", null, { id: "timeline-search", type: "search", placeholder: "Search names", ariaLabel: "Search the timeline", autocomplete: "off", spellcheck: false });
  const found = element("output", null, { id: "timeline-found", ariaLive: "polite" });
  const mode = button("select-mode", "Select", "Drag selects a span of time (Shift)", { ariaPressed: "false" });
  document.getElementById("timeline-tools").append(
    button("zoom-in", "+", "Zoom in (W)"), button("zoom-out", "−", "Zoom out (S)"), button("zoom-all", "Whole run", "Whole run (0)"),
    element("span", null, { id: "stage-jumps" }), mode,
    element("span", null, { className: "find" }, search, button("search-previous", "‹", "Previous (Shift Enter)"), button("search-next", "›", "Next (Enter)"), found),
    button("clear-mark", "Show every kernel", "", { hidden: true }), button("full-screen", "Full screen", "Full screen (F)"), button("show-keys", "?", "Keys (?)"));
  const rows = KEYS.map(([keys, effect]) => element("tr", null, {}, element("th", keys, { scope: "row" }), element("td", effect)));
  const close = element("form", null, { method: "dialog" }, element("button", "Close"));
  const list = element("dialog", null, { id: "timeline-keys", ariaLabel: "Keys of the timeline" },
    element("h3", "Keys of the timeline"), element("table", null, {}, element("tbody", null, {}, ...rows)), close);
  document.getElementById("timeline-view").append(list);
}
