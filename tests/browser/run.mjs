// Opens every page and tests what a user does: node run.mjs PAGES [SCREENSHOTS]
import assert from "node:assert/strict";
import { mkdirSync, statSync } from "node:fs";
import { chromium } from "playwright-core";

const [, , pages, shots] = process.argv;
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox"] });

async function open(name, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1400, height: 1000 }, ...options });
  const page = await context.newPage();
  const troubles = [];
  page.on("console", (message) => { if (["error", "warning"].includes(message.type())) troubles.push(message.text()); });
  page.on("pageerror", (error) => troubles.push(error.message));
  page.on("request", (request) => { if (!/^(file|data):/.test(request.url())) troubles.push("network: " + request.url()); });
  const begun = Date.now();
  await page.goto(`file://${pages}/${name}/report.html`);
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
const column = (page, n) => page.locator(`#kernel-table tbody tr > :nth-child(${n})`).allTextContents();

const tests = {
  async "parts of the page are there"() {
    const { page, close } = await open("dsocr2");
    assert.deepEqual(await page.locator(".card h3").allTextContents(), ["prefill", "decode"]);
    assert.deepEqual(await page.locator(".card .label").allTextContents(), ["launch-bound", "launch-bound"]);
    assert.match(await page.locator("header").textContent(), /NVIDIA H200/);
    assert.equal(await page.locator(".bar").count(), 2);
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
    const whole = await length(page);
    await page.locator("#plot").focus();
    for (let i = 0; i < 12; i++) await page.keyboard.press("+");
    assert.ok(await length(page) < whole / 100);
    const [before] = await view(page);
    await page.keyboard.press("ArrowRight");
    await settled(page);
    assert.ok((await view(page))[0] > before, "an arrow moves it");
    await page.keyboard.press("0");
    assert.equal(await length(page), whole);
    await page.keyboard.press("n");
    await page.keyboard.press("f");
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
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
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
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
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
