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
// Selects items of the first stream from the start of the view on, and tells about them.
const select = async (page, most, until = () => false) => {
  const texts = [];
  await page.locator("#plot").focus();
  await page.keyboard.press("Escape");
  while (texts.length < most && !(texts.length && until(texts.at(-1)))) {
    await page.keyboard.press("n");
    texts.push(await page.locator("#timeline-item").textContent());
  }
  return texts;
};
const merged = /[\d,]+ items, .+ occupied/, isMerged = (text) => merged.test(text);
const start = (text) => Number(/ from ([\d.,]+) ms/.exec(text)[1].replaceAll(",", "")) * 1e6;

// A block of the page alone, which asks for nothing.
const alone = await open(`file://${run}/report.html`);
const span = await alone.evaluate(() => JSON.parse(document.getElementById("timeline-meta").textContent).span);
await alone.goto(`file://${run}/report.html#t=${Math.round(span * 0.5)}_${Math.round(span * 0.501)}`);
await alone.reload();
await alone.waitForSelector("html[data-ready=yes]");
const block = (await select(alone, 300, isMerged)).at(-1);
assert.match(block, merged, "the page alone has blocks");
const at = `#t=${Math.round(start(block) - 50000)}_${Math.round(start(block) + 150000)}`;
await alone.waitForTimeout(1000);
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
// Those in view: the next ones are beyond the piece.
const items = (await select(page, 12)).filter((text) => start(text) < start(block) + 150000);
assert.ok(items.length > 2, String(items.length));
assert.deepEqual(items.filter(isMerged), []);
const launch = items.find((text) => Math.abs(start(text) - start(block)) < 1000);
assert.ok(launch, "the block begins with a single item");
const facts = await page.locator("#timeline-detail").textContent();
assert.match(facts, /Grid/, "a single launch has its shape");
assert.match(facts, /Launch/);
if (shots) await page.screenshot({ path: `${shots}/served.png` });
// What is selected stays so when the items of the page come back, and again when the piece does.
await select(page, 3);
const chosen = start(await page.locator("#timeline-item").textContent());
await page.keyboard.press("0");
await page.waitForSelector("#plot:not([data-piece])");
assert.ok(start(await page.locator("#timeline-item").textContent()) <= chosen);
await page.keyboard.press("z");
await page.keyboard.press("-");
await page.waitForSelector("#plot[data-piece=shown]");
assert.equal(start(await page.locator("#timeline-item").textContent()), chosen);

// A search concerns the whole run, not the piece.
await page.fill("#timeline-search", "e");
const found = Number(/([\d,]+) found/.exec(await page.locator("#timeline-found").textContent())[1].replaceAll(",", ""));
assert.ok(found > 1000, String(found));
assert.ok(asked.every((url) => url.startsWith(address)));
assert.deepEqual(troubles, []);

// Another page cannot read the timeline, and the answer is not for those without the token.
const stranger = await (await browser.newContext()).newPage();
assert.equal((await stranger.goto(asked[0])).status(), 401);
await browser.close();
console.log("ok: a served page loads what it has merged");
