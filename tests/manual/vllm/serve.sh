#!/usr/bin/env bash
# Profiles `vllm serve` under load, then captures a window of a running one. See README.md.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
roofgap=${ROOFGAP:-$root/target/release/roofgap}
out=${OUT:-$root/tmp/vllm-serve}
python=${PYTHON:-python3}
port=${PORT:-8000}
export VLLM_USE_FLASHINFER_SAMPLER=${VLLM_USE_FLASHINFER_SAMPLER:-0} HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 VLLM_LOGGING_LEVEL=${VLLM_LOGGING_LEVEL:-WARNING}
[ -x "$roofgap" ] || { echo "$roofgap is missing: build it with cargo build --release, or set ROOFGAP" >&2; exit 2; }
mkdir -p "$out"
"$python" "$here/model.py" "$out/model" || exit 2
server=("$python" -m vllm.entrypoints.openai.api_server --model "$out/model" --served-model-name m --load-format dummy
    --max-model-len 2048 --gpu-memory-utilization 0.3 --port "$port" --no-enable-prefix-caching)
load=(--concurrency "${CONCURRENCY:-16}" "load.prompt_tokens=${PROMPT:-128}" "load.output_tokens=${TOKENS:-128}" load.vocabulary=900 --url "http://127.0.0.1:$port")
failed=0

# 1. A session: warm-up, then load.
"$roofgap" profile workload=server runner=timeline runner.baseline=false profiling.timeline=native \
    "artifacts.stage2_dir=$out/session" "server.url=http://127.0.0.1:$port" "load.concurrency=${CONCURRENCY:-16}" "load.requests=${REQUESTS:-128}" \
    load.warmup=16 "load.prompt_tokens=${PROMPT:-128}" "load.output_tokens=${TOKENS:-128}" load.vocabulary=900 server.ready_timeout=2m -- "${server[@]}"
echo "== session, status $?"
"$python" "$here/check_server.py" "$(ls -d "$out"/session/2* | tail -n 1)" || failed=1

# 2. A running server: watch, load in the background, capture.
"$roofgap" watch -- "${server[@]}" > "$out/watch.log" 2>&1 &
watched=$!
for _ in $(seq 240); do
    "$python" -c "import urllib.request as u; u.urlopen('http://127.0.0.1:$port/health', timeout=1)" 2>/dev/null && break
    kill -0 "$watched" 2>/dev/null || { tail -n 20 "$out/watch.log" >&2; exit 1; }
    sleep 0.5
done
"$roofgap" load "${load[@]}" --requests 3000 load.duration=10s load.warmup=16 --account "$out/load.json" > "$out/load.txt" 2>&1 &
loading=$!
sleep 4
"$roofgap" capture latest --for 3s --out "$out/capture"
echo "== capture, status $?"
wait "$loading"
cat "$out/load.txt"
run=$(ls -d "$out"/capture/2* | tail -n 1)
"$roofgap" report "$run" --requests "$out/load.json" > "$out/capture.txt" || failed=1
"$python" "$here/check_server.py" --capture "$run" || failed=1
kill -INT "$watched"
wait "$watched"
exit $failed
