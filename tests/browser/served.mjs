// Tests the page of a run that a server gives: node served.mjs ADDRESS TOKEN RUN_DIRECTORY [SCREENSHOTS]
import assert from "node:assert/strict";
import { basename } from "node:path";
import { chromium } from "playwright-core";

const [, , address, token, run, shots] = process.argv;
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox"] });
const context = await browser.newContext({ viewport: { width: 1400, height: 1000 } });
const troubles = [], asked = [];

async function open(url) {
  const page = await context.newPage();
  page.on("console", (message) => { if (["error", "warning"].includes(message.type())) troubles.push(message.text()); });
  page.on("pageerror", (error) => troubles.push(error.message));
  page.on("request", (request) => { if (request.url().includes("/timeline?")) asked.push(request.url()); });
  await page.goto(url);
  await page.waitForSelector("html[data-ready=yes]");
  return page;
}
// Selects an item of the first stream in view, and tells about it.
const selected = async (page) => {
  await page.locator("#plot").focus();
  await page.keyboard.press("Escape");
  await page.keyboard.press("n");
  return page.locator("#timeline-item").textContent();
};
const merged = /[\d,]+ items, .+ occupied/;

// A hundredth of the run, in the middle of it.
const alone = await open(`file://${run}/report.html`);
const span = await alone.evaluate(() => JSON.parse(document.getElementById("timeline-meta").textContent).span);
const at = `#t=${Math.round(span * 0.5)}_${Math.round(span * 0.51)}`;
await alone.goto(`file://${run}/report.html${at}`);
await alone.reload();
await alone.waitForSelector("html[data-ready=yes]");
await alone.waitForTimeout(1000);
assert.match(await selected(alone), merged, "the page alone has blocks there");
assert.deepEqual(asked, [], "the page alone asks for nothing");
await alone.close();

const login = await context.newPage();
await login.goto(`${address}/login?token=${token}`);
assert.equal(new URL(login.url()).pathname, "/");
await login.close();
const page = await open(`${address}/runs/${basename(run)}/page`);
await page.waitForTimeout(1000);
assert.deepEqual(asked, [], "nothing is asked for while too much is in view");
assert.match(await page.locator("#timeline-notes").textContent(), /the server gives them one by one/);

await page.evaluate((hash) => { location.hash = hash; }, at);
await page.waitForSelector("#plot[data-piece=shown]");
assert.equal(asked.length, 1);
assert.ok(asked[0].startsWith(`${address}/profile/${basename(run)}/timeline?from_ns=`), asked[0]);
const single = await selected(page);
assert.doesNotMatch(single, merged);
assert.match(single, / · [\d.,]+ (ns|µs|ms) from /);
const facts = await page.locator("#timeline-detail").textContent();
assert.match(facts, /Grid/, "a single launch has its shape");
assert.match(facts, /Launch/);
if (shots) await page.screenshot({ path: `${shots}/served.png` });
// The selected item stays the selected one when the block around it comes back, and again when its piece does.
const start = / from ([\d.,]+ ms)/.exec(single)[1];
for (let i = 0; i < 40; i++) await page.keyboard.press("n");
await page.keyboard.press("f");
const later = await page.locator("#timeline-item").textContent();
assert.notEqual(/ from ([\d.,]+ ms)/.exec(later)[1], start);
assert.doesNotMatch(later, merged);
await page.keyboard.press("0");
await page.waitForSelector("#plot:not([data-piece])");
await page.keyboard.press("f");
await page.waitForSelector("#plot[data-piece=shown]");
assert.doesNotMatch(await selected(page), merged);

// A search concerns the whole run, not the piece.
await page.fill("#timeline-search", "e");
const found = Number(/([\d,]+) found/.exec(await page.locator("#timeline-found").textContent())[1].replaceAll(",", ""));
assert.ok(found > 1000, String(found));
await page.waitForSelector("#plot[data-piece=shown]");
assert.ok(asked.every((url) => url.startsWith(address)));
assert.deepEqual(troubles, []);

// Another page cannot read the timeline, and the answer is not for those without the token.
const stranger = await (await browser.newContext()).newPage();
assert.equal((await stranger.goto(asked[0])).status(), 401);
await browser.close();
console.log("ok: a served page loads what it has merged");
