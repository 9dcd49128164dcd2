#!/usr/bin/env bash
# Opens the HTML reports of fixtures in a real Chromium. Installs what it needs; if that fails, it skips the test,
# or fails if ROOFGAP_TEST_NO_SKIP is 1.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)

skip() {
  echo "NOT RUN: browser test: $1" >&2
  if [ "${ROOFGAP_TEST_NO_SKIP:-}" = 1 ]; then exit 1; fi
  exit 0
}

find_chromium() {
  for name in "${CHROMIUM:-}" chromium chromium-browser google-chrome; do
    if [ -n "$name" ] && command -v "$name"; then return 0; fi
  done
  return 1
}

command -v npm >/dev/null || skip "npm is not installed"
if ! browser=$(find_chromium); then
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || skip "chromium is not installed, and installing it needs root"
  { apt-get update && apt-get install -y chromium; } >/dev/null 2>&1 || skip "cannot install chromium"
  browser=$(find_chromium) || skip "cannot install chromium"
fi
(cd "$here" && npm ci --no-audit --no-fund >/dev/null 2>&1) || skip "cannot install playwright-core"

pages=$(mktemp -d)
server=
trap 'if [ -n "$server" ]; then kill "$server" 2>/dev/null || true; fi; rm -rf "$pages"' EXIT
cd "$root"
# The features of the tests, so that nothing is built twice.
cargo build --quiet --workspace --features roofgap/manual,roofgap/mcp,roofgap/parquet,roofgap/serve,roofgap/stacks \
  --examples --bins
target=${CARGO_TARGET_DIR:-$root/target}/debug/examples
node "$here/hostile.mjs" > "$pages/hostile.json"
node "$here/hostile.mjs" beside > "$pages/beside.json"
"$target/synth" nsys 250000 "$pages/large.sqlite"
"$target/synth" nsys 400000 "$pages/merged.sqlite" devices=2 streams=3
"$target/render" "$pages/dsocr2" fixtures/h200/dsocr2.sqlite.gz
"$target/render" "$pages/llama4" fixtures/h200/llama4.sqlite.gz fixtures/ncu/llama4_light_raw_base.csv.gz
"$target/render" "$pages/vllm" fixtures/vllm/vllm_dense_graph.sqlite.gz
"$target/render" "$pages/counters" fixtures/ncu/llama2_roofline_raw.csv.gz
mkdir "$pages/compare"
"$target/compare" "$pages/compare/report.html" fixtures/h200/llama4.sqlite.gz fixtures/h200/dsocr2.sqlite.gz
"$target/render" "$pages/summary" fixtures/h200/llama4_cuda_gpu_kern_sum.csv.gz
"$target/render" "$pages/hostile" "$pages/hostile.json"
"$target/render" "$pages/beside" "$pages/beside.json"
"$target/render" "$pages/large" "$pages/large.sqlite"
"$target/render" "$pages/merged" "$pages/merged.sqlite"
CHROMIUM="$browser" node "$here/run.mjs" "$pages" "${1:-}"

# A run with the large timeline, from a server.
roofgap=$target/../roofgap
"$roofgap" profile --quiet runner=unwatched workload.size=nano workload.tokens=4 "artifacts.stage2_dir=$pages/runs" >/dev/null
run=$(echo "$pages"/runs/2*)
mkdir -p "$run/nsys"
mv "$pages/merged.sqlite" "$run/nsys/run.sqlite"
"$roofgap" report "$run" >/dev/null
"$roofgap" serve --quiet --listen 127.0.0.1:0 --dir "$pages/runs" --token-file "$pages/token" >"$pages/address" &
server=$!
for _ in $(seq 100); do [ -s "$pages/address" ] && break; sleep 0.1; done
[ -s "$pages/address" ] || { echo "the server does not listen" >&2; exit 1; }
CHROMIUM="$browser" node "$here/served.mjs" "$(cat "$pages/address")" "$(cat "$pages/token")" "$run" "${1:-}"
