#!/usr/bin/env bash
# Captures of `vllm serve` under load with sampled counters and stacks, and their cost in pairs of windows. See README.md.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
roofgap=${ROOFGAP:-$root/target/release/roofgap}
out=${OUT:-$root/tmp/vllm-live}
python=${PYTHON:-python3}
port=${PORT:-8000}
rounds=${ROUNDS:-5}
seconds=${WINDOW:-2}
export VLLM_USE_FLASHINFER_SAMPLER=${VLLM_USE_FLASHINFER_SAMPLER:-0} HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 VLLM_LOGGING_LEVEL=${VLLM_LOGGING_LEVEL:-WARNING}
[ -x "$roofgap" ] || { echo "$roofgap is missing: build it with cargo build --release --features stacks, or set ROOFGAP" >&2; exit 2; }
mkdir -p "$out"
rm -f "$out/windows"
say() { echo "[$SECONDS s] $*"; }
"$python" "$here/model.py" "$out/model" || exit 2
"$roofgap" watch --duty "${DUTY:-8}" -- "$python" -m vllm.entrypoints.openai.api_server --model "$out/model" --served-model-name m --load-format dummy \
    --max-model-len 2048 --gpu-memory-utilization 0.3 --port "$port" --no-enable-prefix-caching > "$out/watch.log" 2>&1 &
watched=$!
gpm=
trap 'kill $gpm 2>/dev/null; kill -INT "$watched" 2>/dev/null' EXIT
for _ in $(seq 260); do
    "$python" -c "import urllib.request as u; u.urlopen('http://127.0.0.1:$port/health', timeout=1)" 2>/dev/null && break
    kill -0 "$watched" 2>/dev/null || { tail -n 20 "$out/watch.log" >&2; exit 1; }
    sleep 0.5
done
say "the server is ready"
"$roofgap" load --url "http://127.0.0.1:$port" --concurrency "${CONCURRENCY:-16}" load.prompt_tokens=128 load.output_tokens=64 load.vocabulary=900 \
    load.warmup=32 --requests 100000 "load.duration=${LOAD_S:-85}s" --account "$out/load.json" > "$out/load.txt" 2>&1 &
loading=$!
sleep 4
capture() { # NAME SECONDS OPTION...
    local name=$1 seconds=$2
    shift 2
    timeout 60 "$roofgap" capture "$watched" --for "${seconds}s" --out "$out/runs-$name" --format json "$@" > "$out/$name.json" 2>> "$out/$name.err"
    echo "$name $(ls -d "$out/runs-$name"/2* 2>/dev/null | tail -n 1)" >> "$out/windows"
}
# The first one loads CUPTI.
capture first 1 --stacks --counters
for _ in $(seq "$rounds"); do
    kill -0 "$loading" 2>/dev/null || break
    echo "none $(date +%s%N)" >> "$out/windows"
    sleep "$seconds"
    capture plain "$seconds"
    capture counters "$seconds" --counters
    capture stacks "$seconds" --stacks
done
say "pairs are done"
"$python" "$here/gpm.py" "$out/gpm.jsonl" 2> "$out/gpm.err" &
gpm=$!
capture both 3 --counters --stacks
kill $gpm 2>/dev/null
say "the last capture is done"
wait "$loading"
tail -n 12 "$out/load.txt"
run=$(ls -d "$out"/runs-both/2* | tail -n 1)
"$roofgap" report "$run" --requests "$out/load.json" > "$out/both.txt" 2>&1
"$python" "$here/check_live.py" "$out" "$run" "$seconds"
