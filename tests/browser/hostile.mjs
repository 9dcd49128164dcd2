// A trace of the PyTorch profiler whose names try everything; `node hostile.mjs beside`: one whose long kernels begin just after short ones.
const names = [
  "a|b`c<script>window.hacked=1</script>",
  "</script><script>window.hacked=2</script>",
  "<img src=x onerror=window.hacked=3>",
  "line one\nline two\u2028three",
  "\" onmouseover=\"window.hacked=4\" x=\"",
  "{{script}}",
  "x".repeat(5000),
];
const events = [];
let at = 1000;
if (process.argv[2] === "beside") {
  names.length = 0;
  for (let i = 0; i < 400; i++, at += 1010) {
    for (const [name, from, dur] of [["short", 0, 1], ["long", 2, 1000]]) events.push({ ph: "X", cat: "kernel", name, pid: 0, tid: 7, ts: at + from, dur, args: { device: 0, stream: 7 } });
  }
}
names.forEach((name, i) => {
  const correlation = i + 1;
  events.push({ ph: "X", cat: "user_annotation", name, pid: 1, tid: 1, ts: at - 1, dur: 9 });
  events.push({ ph: "X", cat: "cpu_op", name, pid: 1, tid: 1, ts: at, dur: 8 });
  events.push({ ph: "X", cat: "cuda_runtime", name: "cudaLaunchKernel", pid: 1, tid: 1, ts: at + 1, dur: 2, args: { correlation, "External id": i } });
  events.push({ ph: "X", cat: "kernel", name, pid: 0, tid: 7, ts: at + 20, dur: 5, args: { device: 0, stream: 7, correlation, grid: [1, 1, 1], block: [32, 1, 1] } });
  at += 100;
});
events.push({ ph: "X", cat: "user_annotation", name: "prefill", pid: 1, tid: 1, ts: 990, dur: at - 900 });
console.log(JSON.stringify({ schemaVersion: 1, deviceProperties: [{ id: 0, name: "<b>GPU</b>" }], traceEvents: events }));
