// Measures how much time of the main thread a page takes to open, pan and zoom: node measure.mjs PAGE...
// The time is that of the processor, so that other programs on the machine do not change it.
import { statSync } from "node:fs";
import { resolve } from "node:path";
import { chromium } from "playwright-core";

const FRAMES = 40;
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM || "/usr/bin/chromium", args: ["--no-sandbox"] });
for (const path of process.argv.slice(2)) {
  const page = await browser.newPage({ viewport: { width: 1440, height: 900 } });
  const session = await page.context().newCDPSession(page);
  await session.send("Performance.enable", { timeDomain: "threadTicks" });
  const used = async () => 1000 * (await session.send("Performance.getMetrics")).metrics.find((metric) => metric.name === "TaskDuration").value;
  const begun = Date.now();
  await page.goto("file://" + resolve(path));
  await page.waitForSelector("html[data-ready=yes]");
  const parts = [`${(statSync(path).size / 1e6).toFixed(1)} MB`, `ready after ${Date.now() - begun} ms (${Math.round(await used())} ms of the main thread)`];
  for (const [name, keys] of [["pan", ["ArrowRight", "ArrowLeft"]], ["zoom", ["+", "-"]]]) {
    await page.evaluate(() => {
      document.getElementById("timeline").scrollIntoView();
      for (let i = 0; i < 4; i++) document.getElementById("plot").dispatchEvent(new KeyboardEvent("keydown", { key: "+" }));
      return new Promise((done) => requestAnimationFrame(() => done()));
    });
    const [before, start] = [await used(), Date.now()];
    await page.evaluate(async ([keys, frames]) => {
      const box = document.getElementById("plot");
      for (let i = 0; i < frames; i++) {
        box.dispatchEvent(new KeyboardEvent("keydown", { key: keys[i % 20 < 10 ? 0 : 1] }));
        await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
      }
    }, [keys, FRAMES]);
    const wall = Date.now() - start;
    parts.push(`${name}: ${(1000 * FRAMES / wall).toFixed(0)} frames/s, ${((await used() - before) / FRAMES).toFixed(1)} ms of the main thread each`);
  }
  console.log(`${path}: ${parts.join("; ")}`);
  await page.close();
}
await browser.close();
