// Opens every page and tests what a user does: node run.mjs PAGES [SCREENSHOTS]
import assert from "node:assert/strict";
import { mkdirSync, statSync } from "node:fs";
import { chromium } from "playwright-core";

const [, , pages, shots] = process.argv;
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox"] });

async function open(name, options = {}, hash = "") {
  const context = await browser.newContext({ viewport: { width: 1400, height: 1000 }, ...options });
  const page = await context.newPage();
  const troubles = [];
  page.on("console", (message) => { if (["error", "warning"].includes(message.type())) troubles.push(message.text()); });
  page.on("pageerror", (error) => troubles.push(error.message));
  page.on("request", (request) => { if (!/^(file|data):/.test(request.url())) troubles.push("network: " + request.url()); });
  const begun = Date.now();
  await page.goto(`file://${pages}/${name}/report.html${hash}`);
  if (options.javaScriptEnabled !== false) await page.waitForSelector("html[data-ready=yes]");
  const ready = Date.now() - begun;
  return { page, ready, close: async () => { assert.deepEqual(troubles, [], name); await context.close(); } };
}

const view = (page) => page.locator("#plot").evaluate((box) => [Number(box.dataset.from), Number(box.dataset.to)]);
const settled = (page) => page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
const length = async (page) => { await settled(page); const [from, to] = await view(page); return to - from; };
// Counts the colours of the canvas: a blank one has one.
const colors = (page) => page.locator("#plot canvas").evaluate((canvas) => {
  const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data, seen = new Set();
  for (let i = 0; i < data.length; i += 4) seen.add((data[i] << 16) | (data[i + 1] << 8) | data[i + 2]);
  return seen.size;
});
// Counts the pixels of the timeline in the colour of a style variable.
const painted = async (page, variable) => { await settled(page); return page.locator("#plot canvas").evaluate((canvas, variable) => {
  const color = getComputedStyle(document.documentElement).getPropertyValue(variable).trim().slice(1);
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  const wanted = parseInt(color, 16), data = copy.getImageData(0, 0, canvas.width, canvas.height).data;
  let count = 0;
  for (let i = 0; i < data.length; i += 4) if (((data[i] << 16) | (data[i + 1] << 8) | data[i + 2]) === wanted) count += 1;
  return count;
}, variable); };
// For each stream in view: columns that its items occupy, those painted, and what the least height of a column may add.
function laneCover() {
  const { timeline } = document.getElementById("plot"), { painter, box } = timeline, { canvas, width, left } = painter, pixel = 1 / timeline.scale(), covers = [];
  const parts = (color) => [0, 2, 4].map((at) => parseInt(color.slice(1 + at, 3 + at), 16));
  const empty = [parts(painter.panel), parts(painter.line)];
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  for (const lane of timeline.data.lanes) {
    if (lane.group !== "streams" || !lane.visible || !lane.n || lane.top < box.scrollTop || lane.top + lane.height > box.scrollTop + box.clientHeight) continue;
    const columns = new Float64Array(Math.ceil(width) + 1);
    for (let i = 0; i < lane.n; i++) {
      const end = lane.start[i] + lane.length[i], share = (lane.taken[i + 1] - lane.taken[i]) / Math.max(1, lane.length[i]);
      for (let x = Math.max(left, Math.floor(timeline.x(lane.start[i]))); x < width && timeline.time(x) < end; x++) {
        columns[x] += share * Math.max(0, Math.min(end, timeline.time(x + 1)) - Math.max(lane.start[i], timeline.time(x))) / pixel;
      }
    }
    const data = copy.getImageData(0, lane.top, canvas.width, lane.height).data;
    let painted = 0, occupied = 0, least = 0;
    for (let x = left; x < width; x++) {
      occupied += Math.min(1, columns[x]);
      if (columns[x] > 0) least += 2 / lane.height;
      for (let y = 0; y < lane.height; y++) {
        const at = 4 * (y * canvas.width + x);
        if (!empty.some((color) => color.every((part, k) => Math.abs(part - data[at + k]) < 3))) painted += 1 / lane.height;
      }
    }
    covers.push({ label: lane.label, painted, occupied, least: least + 2 });
  }
  return covers;
}
const tooWide = (page) => page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
const column = (page, n) => page.locator(`#kernel-table tbody tr > :nth-child(${n})`).allTextContents();

// Colours as a person without one kind of cones sees them (Machado, Oliveira and Fernandes 2009), by linear red, green and blue.
const DEUTERANOPIA = [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]];
const PROTANOPIA = [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]];
// Distance of two colours in OKLab, times 100.
function distance(a, b, eyes) {
  const times = (matrix, v) => matrix.map((row) => row.reduce((sum, part, i) => sum + part * v[i], 0));
  const lab = (hex) => {
    const linear = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    const seen = (eyes ? times(eyes, linear) : linear).map((v) => Math.max(0, Math.min(1, v)));
    const cones = times([[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566], [0.0883024619, 0.2817188376, 0.6299787005]], seen).map(Math.cbrt);
    return times([[0.2104542553, 0.7936177850, -0.0040720468], [1.9779984951, -2.4285922050, 0.4505937099], [0.0259040371, 0.7827717662, -0.8086757660]], cones);
  };
  const [x, y] = [lab(a), lab(b)];
  return 100 * Math.hypot(...x.map((v, i) => v - y[i]));
}

const tests = {
  async "parts of the page are there"() {
    const { page, close } = await open("dsocr2");
    assert.deepEqual(await page.locator(".card h3").allTextContents(), ["prefill", "decode"]);
    assert.deepEqual(await page.locator(".card .label").allTextContents(), ["launch-bound", "launch-bound"]);
    assert.match(await page.locator("header").textContent(), /NVIDIA H200/);
    assert.equal(await page.locator("#stages .bar").count(), 2);
    assert.equal(await page.locator(".steps rect").count(), 8);
    assert.match(await page.locator("#findings li").first().textContent(), /decode is launch-bound/);
    assert.match(await page.locator("#roofline .absent").textContent(), /No roofline: .+\./);
    assert.ok(await colors(page) > 10, "the timeline is drawn");
    await close();
  },
  async "the table sorts, searches and filters"() {
    const { page, close } = await open("dsocr2");
    const totals = (await column(page, 4)).map(Number);
    assert.deepEqual(totals, [...totals].sort((a, b) => b - a));
    await page.locator("#kernel-table thead button", { hasText: "Calls" }).focus();
    await page.keyboard.press("Enter");
    const calls = (await column(page, 6)).map((text) => Number(text.replaceAll(",", "")));
    assert.deepEqual(calls, [...calls].sort((a, b) => b - a));
    assert.equal(await page.locator("#kernel-table th[aria-sort]").textContent(), "Calls");
    await page.keyboard.press("Enter");
    assert.equal(await page.locator("#kernel-table th[aria-sort=ascending]").textContent(), "Calls");
    await page.fill("#kernel-search", "nvjet tnn");
    const found = await column(page, 1);
    assert.ok(found.length > 0 && found.every((name) => /nvjet/i.test(name) && /tnn/i.test(name)), found.join());
    await page.fill("#kernel-search", "no such kernel");
    assert.equal(await page.locator("#kernel-table tbody tr").count(), 0);
    await page.fill("#kernel-search", "");
    await page.selectOption("#kernel-stage", { label: "decode" });
    assert.match(await page.locator("#kernel-count").textContent(), /7,208 launches/);
    await page.selectOption("#kernel-family", { label: "gemm" });
    assert.deepEqual(new Set(await column(page, 2)), new Set(["gemm"]));
    await close();
  },
  async "the timeline zooms to one kernel and back"() {
    const { page, close } = await open("dsocr2");
    const stages = await length(page);
    await page.locator("#plot").focus();
    await page.keyboard.press("0");
    const whole = await length(page);
    assert.ok(stages < whole, "it opens on the stages");
    await page.keyboard.press("1");
    assert.equal(await length(page), stages);
    await page.keyboard.press("0");
    for (let i = 0; i < 12; i++) await page.keyboard.press("+");
    assert.ok(await length(page) < whole / 100);
    const [before] = await view(page);
    await page.keyboard.press("ArrowRight");
    await settled(page);
    assert.ok((await view(page))[0] > before, "an arrow moves it");
    await page.keyboard.press("0");
    assert.equal(await length(page), whole);
    await page.keyboard.press("n");
    await page.keyboard.press("z");
    assert.ok(await length(page) < whole / 1000, "one item fills the view");
    assert.match(await page.locator("#timeline-item").textContent(), /GPU 0 stream .+(ns|µs|ms)/);
    await page.keyboard.press("Enter");
    assert.match(await page.locator("#timeline-item").textContent(), /^cu/, "its launch is selected");
    await page.keyboard.press("0");
    const box = await page.locator("#plot canvas").boundingBox();
    await page.mouse.move(box.x + box.width / 2, box.y + 10);
    await page.mouse.wheel(0, -240);
    assert.ok(await length(page) < whole, "the wheel zooms a focused timeline");
    const [from] = await view(page);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width / 2 + 120, box.y + 10, { steps: 4 });
    await page.mouse.up();
    await settled(page);
    assert.ok((await view(page))[0] < from, "a drag moves it");
    await close();
  },
  async "findings, steps and kernels link to the timeline"() {
    const { page, close } = await open("llama4");
    const whole = await length(page);
    await page.locator(".jump", { hasText: "Show decode in the timeline" }).first().click();
    const decode = await length(page);
    assert.ok(decode < whole);
    await page.locator(".steps").focus();
    await page.keyboard.press("ArrowRight");
    await page.keyboard.press("ArrowRight");
    await page.keyboard.press("Enter");
    const step = await length(page);
    assert.ok(step < decode / 4, `${step} of ${decode}`);
    await page.locator("#kernel-table tbody button").first().click();
    await page.locator("#kernel-table tr.full button").click();
    assert.ok(await length(page) < step);
    assert.ok(await page.locator("#clear-mark").isVisible());
    assert.ok(await page.locator(".roofline circle").count() > 10);
    assert.ok(await page.locator(".roofline .roof").count() >= 2);
    await close();
  },
  async "lanes of streams paint the time that they occupy"() {
    for (const name of ["dsocr2", "llama4", "vllm", "large", "merged", "beside"]) {
      const { page, close } = await open(name);
      for (const key of ["0", "1"]) {
        await page.locator("#plot").focus();
        await page.keyboard.press(key);
        await settled(page);
        for (const lane of await page.evaluate(laneCover)) {
          assert.ok(lane.painted >= 0.99 * lane.occupied - 1, `${name} ${key} ${lane.label}: ${lane.painted} of ${lane.occupied} columns`);
          assert.ok(lane.painted <= 1.1 * lane.occupied + lane.least, `${name} ${key} ${lane.label}: ${lane.painted} for ${lane.occupied} columns`);
        }
      }
      await close();
    }
  },
  async "idle time is drawn by cause, and lanes fold"() {
    const { page, close } = await open("llama4");
    const idle = await painted(page, "--idle-launch");
    assert.ok(idle > 5000, `${idle} pixels`);
    const chip = page.locator(".fold .chip", { hasText: "idle" });
    await chip.click();
    assert.equal(await chip.getAttribute("aria-pressed"), "false");
    assert.equal(await painted(page, "--idle-launch"), 0);
    await chip.click();
    assert.equal(await painted(page, "--idle-launch"), idle);
    const height = () => page.locator("#plot canvas").evaluate((canvas) => canvas.clientHeight);
    const before = await height(), toggle = page.locator(".fold .toggle", { hasText: "GPU 0" });
    await toggle.click();
    assert.equal(await toggle.getAttribute("aria-expanded"), "false");
    assert.ok(await height() < before - 60);
    assert.equal(await painted(page, "--s-1") > 0, true, "the stages are still drawn");
    assert.ok(await page.locator("#timeline-legend li", { hasText: "idle: launch" }).isVisible());
    await close();
  },
  async "copies and graph launches have lanes of their own"() {
    const { page, close } = await open("vllm");
    const graphs = await painted(page, "--c-graph");
    await page.locator(".fold .chip", { hasText: "graphs" }).click();
    assert.ok(graphs - await painted(page, "--c-graph") > 500, `${graphs} pixels`);
    assert.equal(await page.locator(".fold .chip", { hasText: "copies" }).count(), 1);
    assert.ok(await page.locator("#stages .steps g").count() > 20, "requests and tokens of the engine's steps");
    await close();
  },
  async "a step has a number and a link, and the position is in the address"() {
    const { page, close } = await open("llama4", {}, "#step=decode.3");
    assert.match(await page.locator("#timeline-item").textContent(), /^step 3 of decode\n/);
    const third = await view(page);
    await page.locator("#plot").focus();
    await page.keyboard.press("ArrowRight");
    await page.waitForFunction(() => /^#t=\d+_\d+/.test(location.hash));
    const address = await page.evaluate(() => location.hash);
    await close();
    const again = await open("llama4", {}, address);
    await settled(again.page);
    const moved = await view(again.page);
    assert.ok(moved[0] > third[0] && Math.abs((moved[1] - moved[0]) - (third[1] - third[0])) < 3, `${third} ${moved}`);
    await again.close();
  },
  async "a span of time has totals by kernel, family and cause"() {
    const { page, close } = await open("llama4");
    await page.locator("#plot").focus();
    await page.keyboard.press("0");
    await page.keyboard.press("t");
    const head = await page.locator(".span-head").textContent();
    assert.match(head, /3,5\d\d GPU operations, .+ idle for [\d,.]+ m?s /);
    // Three significant digits, as in the text of the report; moments have the unit of the axis.
    assert.match(head, /^(\d\.\d\d|\d\d\.\d|[\d,]{3,}) (µs|ms|s) selected, from [\d,]+\.\d{3} ms: /);
    // The whole run has the totals of the kernel table.
    const kernel = page.locator("#timeline-span table").nth(0).locator("tbody tr").first();
    const row = page.locator("#kernel-table tbody tr").first();
    assert.equal(await kernel.locator("th").textContent(), await row.locator("th").textContent());
    const [shown, total] = [await kernel.locator("td").first().textContent(), await row.locator("td").nth(2).textContent()];
    const [value, unit] = shown.replaceAll(",", "").split(" "), ms = { ns: 1e-6, "µs": 1e-3, ms: 1, s: 1e3 };
    assert.equal((value * ms[unit]).toPrecision(3), Number(total.replaceAll(",", "")).toPrecision(3), shown);
    assert.match(await page.locator("#timeline-span table").nth(1).textContent(), /gemm/);
    assert.match(await page.locator("#timeline-span table").nth(2).textContent(), /idle: launch/);
    await page.keyboard.press("Escape");
    assert.ok(await page.locator("#timeline-span").isHidden());
    const box = await page.locator("#plot canvas").boundingBox();
    await page.keyboard.down("Shift");
    await page.mouse.move(box.x + 400, box.y + 60);
    await page.mouse.down();
    await page.mouse.move(box.x + 700, box.y + 60, { steps: 4 });
    await page.mouse.up();
    await page.keyboard.up("Shift");
    const before = await view(page);
    assert.ok(await page.locator("#timeline-span").isVisible(), "a drag with Shift selects");
    await page.locator("#timeline-span button", { hasText: "Zoom to it" }).click();
    assert.ok(await length(page) < (before[1] - before[0]) / 2);
    await page.locator("#timeline-span button", { hasText: "Clear" }).click();
    await page.locator("#select-mode").click();
    const now = await page.locator("#plot canvas").boundingBox();
    await page.mouse.move(now.x + 400, now.y + 60);
    await page.mouse.down();
    await page.mouse.move(now.x + 600, now.y + 60, { steps: 4 });
    await page.mouse.up();
    assert.ok(await page.locator("#timeline-span").isVisible(), "the button Select selects too");
    await close();
  },
  async "search goes to the next and the previous item"() {
    const { page, close } = await open("llama4");
    await page.locator("#plot").focus();
    await page.keyboard.press("/");
    await page.keyboard.type("nvjet tnt");
    const found = page.locator("#timeline-found");
    assert.match(await found.textContent(), /^[\d,]+ found$/);
    await page.keyboard.press("Enter");
    const first = await found.textContent(), item = page.locator("#timeline-item");
    assert.match(first, /^\d[\d,]* of \d/);
    assert.match(await item.textContent(), /^nvjet/);
    const at = await item.textContent();
    await page.keyboard.press("Enter");
    assert.notEqual(await item.textContent(), at);
    await page.keyboard.press("Shift+Enter");
    assert.equal(await found.textContent(), first);
    assert.equal(await item.textContent(), at);
    await page.fill("#timeline-search", "no such name");
    assert.equal(await found.textContent(), "nothing found");
    await page.keyboard.press("Escape");
    assert.ok(await page.locator("#clear-mark").isHidden());
    await close();
  },
  async "the selected kernel has its details, and ? lists the keys"() {
    const { page, close } = await open("llama4");
    await page.locator("#kernel-table tbody button").first().click();
    await page.locator("#kernel-table tr.full button").click();
    const detail = await page.locator("#timeline-detail").textContent();
    assert.match(detail, /Duration(\d\.\d\d|\d\d\.\d|[\d,]{3,}) (µs|ms|s) \([\d,]+ ns\)/);
    for (const part of ["Duration", "Grid", "Block", "Registers", "Launch", "Ranges", "decode_step", "Counters"]) assert.ok(detail.includes(part), `${part}: ${detail}`);
    await page.keyboard.press("?");
    assert.ok(await page.locator("#timeline-keys").isVisible());
    await page.keyboard.press("Escape");
    assert.ok(await page.locator("#timeline-keys").isHidden());
    await close();
  },
  async "dots of the roofline name their kernel and lead to it"() {
    const { page, close } = await open("llama4");
    const dot = page.locator(".roofline .dot").nth(1), name = (await dot.getAttribute("aria-label")).split(", ")[0];
    await page.locator(".roofline .dot").first().focus();
    await page.keyboard.press("ArrowRight");
    const tip = page.locator("#roofline-tip");
    assert.ok((await tip.textContent()).startsWith(name));
    assert.match(await tip.textContent(), /\d % of the roof/);
    await page.keyboard.press("Enter");
    assert.ok((await page.locator("#timeline-item").textContent()).startsWith(name));
    const grid = (await dot.getAttribute("data-shape")).split(",").slice(0, 3).join(" × ");
    assert.ok((await page.locator("#timeline-detail").textContent()).includes("Grid" + grid), "the launch has the shape of the dot");
    assert.equal(await page.locator(".roofline .stage-point").count(), 2);
    assert.ok(await page.locator("#roofline details tbody tr").count() > 10);
    await close();
  },
  async "the roofline filters, has two colourings, and its tip moves nothing"() {
    const { page, close } = await open("llama4");
    const state = () => page.evaluate(() => [document.documentElement.scrollHeight, Math.round(document.getElementById("kernels").getBoundingClientRect().top)]);
    const shown = () => page.locator(".roofline .dot:not(.off)").count(), all = await shown();
    const dot = page.locator(".roofline .dot").first();
    await dot.scrollIntoViewIfNeeded();
    const before = await state(), fill = () => dot.evaluate((at) => getComputedStyle(at).fill), family = await fill();
    await dot.hover({ force: true });
    assert.ok(await page.locator("#roofline-tip").isVisible());
    assert.deepEqual(await state(), before, "the page stands still");
    const [colour, stage, kind] = await page.locator("#roofline .tools select").all();
    await colour.selectOption("stage");
    assert.notEqual(await fill(), family);
    await stage.selectOption("decode");
    const decode = await shown();
    assert.ok(decode > 0 && decode < all, `${decode} of ${all}`);
    await kind.selectOption("gemm");
    assert.ok(await shown() < decode);
    // Only words lie above a dot, and the pointer passes through them.
    const order = await page.locator(".roofline").first().evaluate((svg) => [...svg.children].map((part) => part.classList[0]));
    assert.ok(order.lastIndexOf("stage-point") < order.indexOf("dot") && order.lastIndexOf("dot") < order.indexOf("roof-name"));
    assert.ok(await page.locator(".roofline text").evaluateAll((all) => all.every((text) => getComputedStyle(text).pointerEvents === "none")));
    assert.ok(await page.locator("#roofline h3", { hasText: "without floating-point work" }).count() === 1);
    await close();
  },
  async "labels of the roofline do not lie on each other"() {
    for (const name of ["llama4", "counters"]) for (const width of [390, 1440]) {
      const { page, close } = await open(name, { viewport: { width, height: 900 } });
      for (const drawing of await page.locator("svg.roofline").all()) {
        const { labels, frame } = await drawing.evaluate((svg) => ({
          frame: svg.getBoundingClientRect().toJSON(),
          labels: [...svg.querySelectorAll("text")].filter((text) => getComputedStyle(text).visibility === "visible" && getComputedStyle(text).display !== "none")
            .map((text) => ({ ...text.getBoundingClientRect().toJSON(), text: text.textContent })),
        }));
        assert.ok(labels.length > 4 && labels.some((label) => /B\/s/.test(label.text)), `${name} ${width}: ${labels.map((label) => label.text)}`);
        labels.forEach((a, i) => {
          for (const b of labels.slice(0, i)) assert.ok(a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top, `${name} ${width}: ${a.text} lies on ${b.text}`);
          assert.ok(a.left >= frame.left - 1 && a.right <= frame.right + 1 && a.top >= frame.top - 1 && a.bottom <= frame.bottom + 1, `${name} ${width}: ${a.text} is cut`);
        });
      }
      await close();
    }
  },
  async "caches have roofs where ncu measured them"() {
    const { page, close } = await open("counters");
    assert.deepEqual(await page.locator(".roofline .roof-name").allTextContents().then((all) => all.filter((name) => /^L\d/.test(name)).map((name) => name.slice(0, 2))), ["L1", "L2"]);
    const [l1, l2] = await Promise.all(["line.l1", "line.l2"].map((roof) => page.locator(".roofline " + roof).boundingBox()));
    assert.ok(l1.x + l1.width < l2.x + l2.width, "the roof of L1 is left of that of L2");
    assert.ok(await page.locator(".roofline .ring").count() > 10);
    await close();
  },
  async "the first screen says what was profiled, its limit and what to do, and shows the timeline"() {
    for (const name of ["llama4", "dsocr2", "vllm"]) {
      const { page, close } = await open(name, { viewport: { width: 1440, height: 900 } });
      const title = await page.locator("h1").textContent(), top = async (what) => (await page.locator(what).first().boundingBox()).y;
      assert.match(title, /^[^/]+ on NVIDIA H200/);
      assert.match(await page.locator(".card").first().textContent(), /Largest part.+Distance to the limit/);
      assert.ok(await top(".cards") < 300);
      const first = page.locator("#first li");
      assert.equal(await first.count(), Math.min(3, await page.locator("#findings .findings > li").count()));
      assert.ok(await top("#first li:last-child") < 700, `${name}: the findings are on the first screen`);
      const plot = await page.locator("#plot").boundingBox();
      assert.ok(plot.height >= 450, `${name}: ${plot.height} px`);
      assert.ok(plot.y < 900 && plot.y + plot.height <= 1800, `${name}: at ${plot.y}`);
      await first.locator("a").first().click();
      assert.ok(await page.locator("#findings li").first().isVisible());
      await close();
    }
  },
  async "findings have evidence and an action to copy"() {
    const { page, close } = await open("dsocr2", { permissions: ["clipboard-read", "clipboard-write"] });
    const finding = page.locator("#findings li").first();
    assert.ok(await finding.locator(".cut rect").count() > 24);
    await finding.locator(".copy").click();
    await page.waitForFunction(() => document.querySelector(".copy").textContent === "Copied");
    assert.equal(await page.evaluate(() => navigator.clipboard.readText()), await finding.locator(".action span").textContent());
    const flame = page.locator(".flame li").filter({ has: page.locator("li") }).first(), child = flame.locator("li").first();
    const narrow = (await child.boundingBox()).width;
    await child.locator("button").first().click();
    assert.ok((await child.boundingBox()).width >= narrow);
    assert.ok(await child.evaluate((item) => item.classList.contains("wide")));
    await close();
  },
  async "keys move, zoom and fill the screen"() {
    const { page, close } = await open("llama4");
    await page.locator("#plot").focus();
    await page.keyboard.press("0");
    const whole = await length(page);
    for (let i = 0; i < 3; i++) await page.keyboard.press("w");
    const near = await length(page), [left] = await view(page);
    assert.ok(near < whole / 3);
    await page.keyboard.press("d");
    await settled(page);
    const [right] = await view(page);
    assert.ok(right > left);
    await page.keyboard.press("a");
    await page.keyboard.press("s");
    assert.ok(await length(page) > near);
    const small = (await page.locator("#plot").boundingBox()).height;
    await page.keyboard.press("f");
    const full = await page.locator("#timeline-view").boundingBox(), plot = await page.locator("#plot").boundingBox();
    assert.deepEqual([full.x, full.y, full.width, full.height], [0, 0, 1400, 1000]);
    assert.ok(plot.height > 800 && plot.height > small && plot.y + plot.height <= 1000, `${plot.y} ${plot.height}`);
    await page.keyboard.press("Escape");
    assert.equal((await page.locator("#plot").boundingBox()).height, small);
    await close();
  },
  async "the strip of the whole run moves the view, and the pointer has a time"() {
    const { page, close } = await open("llama4");
    await page.locator("#plot").focus();
    await page.keyboard.press("0");
    for (let i = 0; i < 4; i++) await page.keyboard.press("w");
    const part = await length(page), strip = await page.locator("#minimap").boundingBox();
    const left = await page.evaluate(() => document.getElementById("plot").timeline.painter.left);
    const whole = await page.evaluate(() => document.getElementById("plot").timeline.whole);
    await page.mouse.click(strip.x + left + (strip.width - left) * 0.75, strip.y + 10);
    await settled(page);
    const [from, to] = await view(page);
    assert.ok(Math.abs((from + to) / 2 / whole - 0.75) < 0.01 && Math.abs(to - from - part) < 3, `${from} ${to}`);
    const box = await page.locator("#plot canvas").boundingBox();
    await page.mouse.move(box.x + left + (box.width - left) / 2, box.y + 40);
    const shown = Number((await page.locator("#cursor").textContent()).replace(/[ ms,]/g, ""));
    assert.ok(Math.abs(shown * 1e6 - (from + to) / 2) < (to - from) / 100, `${shown} ms`);
    await close();
  },
  async "numbers of steps are whole, and each is there once"() {
    const { page, close } = await open("llama4");
    await page.locator("#plot").focus();
    for (const [key, times] of [["0", 0], ["1", 0], ["1", 1], ["1", 2], ["1", 4]]) {
      await page.keyboard.press(key);
      for (let i = 0; i < times; i++) await page.keyboard.press("w");
      const [texts, steps] = await page.evaluate(() => {
        const { timeline } = document.getElementById("plot"), { painter } = timeline, texts = [], lane = timeline.data.lanes.find((at) => at.group === "steps");
        const write = painter.pen.fillText.bind(painter.pen);
        painter.pen.fillText = (text, x, y, most) => {
          // The room right of its begin: up to the end of the step in view.
          const i = lane.text.indexOf(text), room = i < 0 ? 0 : timeline.x(lane.start[i] + lane.length[i]) - x - painter.pen.measureText(text).width;
          if (y >= lane.top && y < lane.top + lane.height && x >= painter.left) texts.push({ text, room });
          write(text, x, y, most);
        };
        painter.draw(timeline);
        delete painter.pen.fillText;
        return [texts, lane.text];
      });
      const names = texts.map(({ text }) => text);
      assert.ok(new Set(names).size === names.length && names.every((text) => steps.includes(text)), names.join());
      assert.ok(texts.every(({ text, room }) => room >= 0 || text % 10 === 0), JSON.stringify(texts));
      assert.ok(key === "0" || names.length > 0);
    }
    await close();
  },
  async "an arrow leads from the launch to its kernel"() {
    const { page, close } = await open("llama4");
    await page.locator("#plot").focus();
    await page.keyboard.press("1");
    await page.keyboard.press("n");
    await page.keyboard.press("z");
    for (let i = 0; i < 6; i++) await page.keyboard.press("s");
    await settled(page);
    const found = await page.evaluate(() => {
      const { timeline } = document.getElementById("plot"), { painter, selected } = timeline, [call] = timeline.partners(selected), { lane, i } = selected;
      const color = [0, 2, 4].map((at) => parseInt(painter.accent.slice(1 + at, 3 + at), 16)), x = Math.round(timeline.x(lane.start[i])), y = lane.top + lane.height + 5;
      const data = painter.pen.getImageData(x - 3, y - 3, 7, 7).data;
      let hits = 0;
      for (let at = 0; at < data.length; at += 4) if (color.every((part, k) => Math.abs(part - data[at + k]) < 40)) hits += 1;
      return [call.lane.visible, hits];
    });
    assert.ok(found[0] && found[1] >= 8, found.join());
    await close();
  },
  async "a gap says what ran before and after it, and why"() {
    const { page, close } = await open("llama4");
    for (let gap = 5; gap < 60; gap += 5) {
      const wanted = await page.evaluate((i) => {
        const { timeline } = document.getElementById("plot"), lane = timeline.data.lanes.find((at) => at.group === "idle" && at.n > 100);
        const ops = timeline.data.lanes.filter((at) => at.group === "streams").flatMap((at) => Array.from(at.start, (start, k) => ({ start, end: start + at.length[k], name: timeline.painter.nameOf(at, k) })));
        const from = lane.start[i], to = from + lane.length[i];
        timeline.pick({ lane, i }, true);
        return [ops.filter((op) => op.end <= from).sort((a, b) => b.end - a.end)[0].name, ops.filter((op) => op.start >= to).sort((a, b) => a.start - b.start)[0].name];
      }, gap);
      const text = await page.locator("#timeline-item").textContent();
      assert.ok(text.includes(`after ${wanted[0]}`) && text.includes(`before ${wanted[1]}`), `${text} ${wanted}`);
      assert.match(text, /the CPU had not launched|launched and not started|was waiting|inside a copy/);
    }
    await close();
  },
  async "the piece beside a finding shows what it speaks of"() {
    const { page, close } = await open("vllm");
    const pieces = await page.locator("#findings li").evaluateAll((all) => all.filter((li) => li.querySelector(".cut")).map((li) => {
      const [spot, drawing] = [".spot", "svg"].map((part) => li.querySelector(".cut " + part).getBoundingClientRect());
      return { title: li.querySelector("b").textContent, kernel: li.querySelector("button.jump").dataset.kernel, caption: li.querySelector("figcaption").textContent, share: spot.width / drawing.width };
    }));
    assert.ok(pieces.length > 2);
    for (const piece of pieces) assert.match(piece.caption, piece.kernel ? /the longest launch of/ : /the longest (gap|launch)/, piece.title);
    for (const { kernel, caption } of pieces) if (kernel) assert.ok(caption.includes(kernel), caption);
    // The longest gap fills most of what is around it.
    assert.ok(pieces.find((piece) => /launch-bound/.test(piece.title)).share > 0.2);
    await close();
  },
  async "the selected item is in the address"() {
    const { page, close } = await open("llama4");
    await page.locator("#plot").focus();
    await page.keyboard.press("n");
    await page.keyboard.press("n");
    await page.waitForFunction(() => /&i=\d+_\d+_\d+$/.test(location.hash));
    const [address, item] = [await page.evaluate(() => location.hash), await page.locator("#timeline-item").textContent()];
    await close();
    const again = await open("llama4", {}, address);
    assert.equal(await again.page.locator("#timeline-item").textContent(), item);
    await again.close();
  },
  async "a hit of a search is wide enough to be seen, and a stage shows its GPU work"() {
    const { page, close } = await open("dsocr2");
    await page.locator("#plot").focus();
    await page.keyboard.press("0");
    await page.fill("#timeline-search", "nvjet");
    await page.locator("#search-next").click();
    const wide = await page.evaluate(() => { const { timeline } = document.getElementById("plot"), { lane, i } = timeline.selected; return lane.length[i] * timeline.scale(); });
    assert.ok(wide >= 8, `${wide} px`);
    await page.locator("#stage-jumps button", { hasText: "decode" }).click();
    await settled(page);
    const [from, to] = await view(page), gpu = await page.evaluate(() => document.getElementById("plot").timeline.data.meta.stages.find((stage) => stage.name === "decode").gpu);
    assert.ok(from <= gpu[0] && gpu[0] + gpu[1] <= to && gpu[1] > 0.9 * (to - from), `${from} ${to} ${gpu}`);
    await close();
  },
  async "a kernel opens to its shapes, durations, stages and counters"() {
    const { page, close } = await open("llama4");
    await page.fill("#kernel-search", "nvjet");
    await page.locator("#kernel-table tbody button").first().click();
    const drawer = page.locator("#kernel-table tr.full"), text = await drawer.textContent();
    for (const part of ["Durations", "Launch shapes", "Launched inside", "Stages", "Counters of ncu"]) assert.ok(text.includes(part), `${part}: ${text}`);
    // Every launch is in the histogram.
    const calls = Number((await column(page, 6))[0].replaceAll(",", "")), counted = (await drawer.locator(".histogram i").evaluateAll((bars) => bars.map((bar) => parseInt(bar.title.replaceAll(",", ""), 10)))).reduce((a, b) => a + b, 0);
    assert.equal(counted, calls);
    await close();
  },
  async "kernel time is drawn by stage, family and kernel"() {
    const { page, close } = await open("dsocr2");
    await page.locator("#kernel-flame summary").click();
    const stages = page.locator("#kernel-flame .flame > ul > li");
    await stages.first().waitFor();
    assert.deepEqual((await stages.evaluateAll((all) => all.map((box) => box.firstChild.firstChild.data.trim()))).sort(), ["decode", "prefill"]);
    // Families fill their stage, and kernels their family.
    for (const level of await page.locator("#kernel-flame li > ul").all()) {
      const sum = await level.evaluate((list) => [...list.children].reduce((sum, item) => sum + parseFloat(item.style.width), 0));
      assert.ok(Math.abs(sum - 100) < 0.1, `${sum} %`);
    }
    assert.ok(await page.locator("#kernel-flame .flame > ul > li > ul > li > ul > li").count() > 10);
    await close();
  },
  async "tables sort and filter"() {
    const { page, close } = await open("dsocr2");
    const table = page.locator("#operators table, #ranges table, #provenance table").filter({ has: page.locator("tbody tr:nth-child(2)") }).first();
    const head = table.locator("thead th").first(), cells = async () => (await table.locator("tbody tr th").allTextContents()).map((text) => text.toLowerCase());
    await head.locator("button").click();
    const up = await cells();
    assert.deepEqual(up, [...up].sort());
    await head.locator("button").click();
    assert.deepEqual(await cells(), [...up].sort().reverse());
    await close();
    const other = await open("counters");
    const filter = other.page.locator("#kernels input.filter").first(), long = filter.locator("xpath=following-sibling::div[1]//tbody/tr");
    const rows = await long.count(), word = (await long.first().locator("th").textContent()).split(/\W/)[0];
    const visible = () => long.evaluateAll((all) => all.filter((row) => !row.hidden).length), more = filter.locator("xpath=following-sibling::button[1]");
    assert.ok(rows > 12 && await visible() === 10, "a long table shows its first rows");
    await more.click();
    assert.ok(await visible() === rows && await more.isHidden());
    await filter.fill(word);
    const left = await long.evaluateAll((all) => all.filter((row) => !row.hidden).map((row) => row.textContent.toLowerCase()));
    assert.ok(left.length > 0 && left.length < rows && left.every((text) => text.includes(word.toLowerCase())), `${left.length} of ${rows} with ${word}`);
    await other.close();
  },
  async "colours of families, stages and causes differ, also for colour-blind eyes"() {
    for (const colorScheme of ["light", "dark"]) {
      const { page, close } = await open("dsocr2", { colorScheme });
      const [families, stages, causes] = await page.evaluate(() => {
        const style = getComputedStyle(document.documentElement), { classes } = document.getElementById("plot").timeline.data.meta;
        const colors = (names) => names.map((name) => [name, style.getPropertyValue("--" + name).trim()]);
        const families = classes.slice(0, classes.indexOf("memcpy")).map((name) => "c-" + (name === "copy/layout" ? "layout" : name));
        return [colors(families), colors([0, 1, 2, 3, 4, 5].map((i) => "s-" + i)), colors(["busy", "idle-launch", "idle-sync", "idle-copy", "idle-other"])];
      });
      assert.equal(families.length, 15);
      for (const [palette, least] of [[families, 6], [stages, 8], [causes, 9]]) for (const eyes of [null, DEUTERANOPIA, PROTANOPIA]) {
        for (const [i, [name, color]] of palette.entries()) for (const [other, second] of palette.slice(0, i)) {
          const apart = distance(color, second, eyes);
          assert.ok(apart >= least, `${colorScheme}: ${name} and ${other} are ${apart.toFixed(1)} apart`);
        }
      }
      const all = [families, stages, causes];
      for (const [at, palette] of all.entries()) for (const [name, color] of palette) for (const [other, second] of all.slice(at + 1).flat()) {
        const least = name.startsWith("c-") && other.startsWith("idle-") ? 9 : 3.5;
        assert.ok(distance(color, second, null) >= least, `${colorScheme}: ${name} and ${other}`);
      }
      await close();
    }
  },
  async "every page fits a phone"() {
    for (const name of ["dsocr2", "llama4", "vllm", "counters", "summary", "merged", "hostile", "compare"]) for (const colorScheme of ["light", "dark"]) {
      const { page, close } = await open(name, { viewport: { width: 390, height: 844 }, colorScheme });
      assert.ok(await tooWide(page) <= 0, `${name} is ${await tooWide(page)} px too wide`);
      await close();
    }
  },
  async "tables on a phone keep their first column, and no cell lies on another"() {
    for (const name of ["dsocr2", "llama4", "vllm", "counters"]) {
      const { page, close } = await open(name, { viewport: { width: 390, height: 844 } });
      const wrong = await page.evaluate(() => [...document.querySelectorAll(".scroll > table")].flatMap((table) => {
        const found = [], box = table.parentElement, visible = [...table.rows].filter((row) => row.offsetParent && !row.hidden);
        for (const row of visible) {
          const cells = [...row.cells].filter((cell) => cell.offsetParent).map((cell) => ({ cell, ...cell.getBoundingClientRect().toJSON() }));
          cells.forEach(({ cell, left }, i) => {
            if (cell.scrollWidth > cell.clientWidth + 1) found.push(`cut: ${cell.textContent}`);
            if (i && left < cells[i - 1].right - 1) found.push(`on another: ${cell.textContent}`);
          });
        }
        box.scrollLeft = box.scrollWidth;
        for (const row of visible) if (Math.abs(row.cells[0].getBoundingClientRect().left - box.getBoundingClientRect().left) > 1) found.push(`away: ${row.cells[0].textContent}`);
        return found;
      }));
      assert.deepEqual(wrong, [], name);
      await close();
    }
  },
  async "a comparison sorts and fits a phone"() {
    const { page, close } = await open("compare", { viewport: { width: 390, height: 844 } });
    assert.ok(await tooWide(page) <= 0, "too wide");
    const table = page.locator("h3 ~ .scroll table").nth(1), cells = async () => (await table.locator("tbody tr td:nth-child(3)").allTextContents()).map(parseFloat);
    const head = table.locator("thead th").nth(2);
    await head.locator("button").click();
    const down = await cells();
    assert.ok(down.length > 2);
    assert.deepEqual(down, [...down].sort((a, b) => b - a));
    assert.equal(await head.getAttribute("aria-sort"), "descending");
    await head.locator("button").click();
    assert.deepEqual(await cells(), [...down].sort((a, b) => a - b));
    await close();
  },
  async "text has contrast in light and dark"() {
    for (const colorScheme of ["light", "dark"]) {
      const { page, close } = await open("dsocr2", { colorScheme });
      const low = await page.evaluate(() => {
        const style = getComputedStyle(document.documentElement), color = (name) => style.getPropertyValue(name).trim();
        const light = (hex) => {
          const full = hex.length === 4 ? [...hex.slice(1)].map((d) => d + d).join("") : hex.slice(1);
          const [r, g, b] = [0, 2, 4].map((at) => parseInt(full.slice(at, at + 2), 16) / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
          return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const ratio = (a, b) => { const [x, y] = [light(color(a)), light(color(b))].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
        const pairs = ["--text", "--soft", "--accent", "--warn"].flatMap((ink) => [[ink, "--bg"], [ink, "--panel"]]);
        return pairs.filter(([ink, ground]) => ratio(ink, ground) < 4.5).map((pair) => pair.join(" on "));
      });
      assert.deepEqual(low, [], colorScheme);
      await close();
    }
  },
  async "hostile names stay text"() {
    const { page, close } = await open("hostile");
    await page.locator("#plot").focus();
    for (let i = 0; i < 9; i++) await page.keyboard.press("n");
    const box = await page.locator("#plot canvas").boundingBox();
    for (let x = 140; x < box.width; x += 40) await page.mouse.move(box.x + x, box.y + box.height - 30);
    for (const button of await page.locator("#kernel-table tbody tr:not(.full) button").all()) await button.click();
    assert.equal(await page.evaluate(() => window.hacked), undefined);
    assert.equal(await page.locator("script").count(), 4);
    assert.equal(await page.locator("img, iframe, object").count(), 0);
    assert.match((await column(page, 1)).join("\n"), /<script>window.hacked=1<\/script>/);
    const wide = await tooWide(page);
    assert.ok(wide <= 0, `the page is ${wide} px too wide`);
    await close();
  },
  async "missing parts are explained"() {
    const { page, close } = await open("summary");
    assert.match(await page.locator("#timeline .absent").first().textContent(), /No timeline: .+\./);
    assert.ok(await page.locator("#timeline-view").isHidden());
    assert.match(await page.locator("header .absent").textContent(), /No stages: .+\./);
    assert.ok((await column(page, 1)).length > 10);
    await close();
  },
  async "it reads without scripts"() {
    const { page, close } = await open("dsocr2", { javaScriptEnabled: false });
    assert.equal(await page.locator("#kernel-table tbody tr").count(), 25);
    assert.ok(await page.locator("#findings li").count() > 0);
    await close();
  },
  async "a large timeline is complete, and merged blocks are announced"() {
    const large = await open("large");
    console.log(`  250,000 kernels: ${(statSync(`${pages}/large/report.html`).size / 1e6).toFixed(1)} MB, ready after ${large.ready} ms`);
    assert.ok(statSync(`${pages}/large/report.html`).size < 15e6);
    assert.ok(statSync(`${pages}/dsocr2/report.html`).size < 2e6);
    assert.equal(await large.page.locator("#timeline-notes li").count(), 0);
    const frame = await large.page.evaluate(async () => {
      const box = document.getElementById("plot"), times = [];
      for (let i = 0; i < 60; i++) {
        box.dispatchEvent(new KeyboardEvent("keydown", { key: i % 20 < 10 ? "+" : "-" }));
        const begun = performance.now();
        await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
        times.push(performance.now() - begun);
      }
      return times.sort((a, b) => a - b)[30];
    });
    console.log(`  a frame while zooming takes ${frame.toFixed(1)} ms (median)`);
    await large.close();
    const merged = await open("merged");
    assert.match(await merged.page.locator("#timeline-notes").textContent(), /40\d,\d+ GPU operations are drawn as [\d,]+ blocks/);
    assert.ok(await colors(merged.page) > 5);
    await merged.close();
  },
  async "it fits a phone, in the dark, and on paper"() {
    const { page, close } = await open("llama4", { viewport: { width: 390, height: 844 }, colorScheme: "dark", hasTouch: true });
    const wide = await tooWide(page);
    assert.ok(wide <= 0, `the page is ${wide} px too wide`);
    const background = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    assert.notEqual(background, "rgb(255, 255, 255)");
    assert.ok(await colors(page) > 5);
    const paper = await page.pdf({ format: "A4" });
    assert.ok(paper.length > 10000);
    await close();
  },
};

let failed = 0;
for (const [name, test] of Object.entries(tests)) {
  try {
    await test();
    console.log(`ok: ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED: ${name}\n${error.stack}`);
  }
}
if (shots) {
  mkdirSync(shots, { recursive: true });
  for (const [label, width, colorScheme] of [["wide-light", 1400, "light"], ["wide-dark", 1400, "dark"], ["narrow-light", 390, "light"], ["narrow-dark", 390, "dark"]]) {
    const { page, close } = await open("llama4", { viewport: { width, height: 1000 }, colorScheme });
    await page.screenshot({ path: `${shots}/${label}.png`, fullPage: true });
    await close();
  }
}
await browser.close();
process.exitCode = failed ? 1 : 0;
