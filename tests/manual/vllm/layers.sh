#!/usr/bin/env bash
# Layers of a plain torch model, eager and as a CUDA graph, and of vLLM with graphs; then counters of vLLM. See README.md.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
roofgap=${ROOFGAP:-$root/target/release/roofgap}
out=${OUT:-$root/tmp/layers}
python=${PYTHON:-python3}
[ $# -gt 0 ] || set -- torch vllm counters
export SIZES=${SIZES:-1,2,4,8,16} ROUNDS=${ROUNDS:-1} TOKENS=${TOKENS:-16}
export VLLM_USE_FLASHINFER_SAMPLER=${VLLM_USE_FLASHINFER_SAMPLER:-0} HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 VLLM_LOGGING_LEVEL=${VLLM_LOGGING_LEVEL:-WARNING}
[ -x "$roofgap" ] || { echo "$roofgap is missing: build it with cargo build --release, or set ROOFGAP" >&2; exit 2; }
mkdir -p "$out"

# profile NAME OVERRIDE... -- PROGRAM...: runs a session in a folder of its own, whose path is left in $run.
profile() {
    local folder=$out/$1
    shift
    mkdir -p "$folder"
    "$roofgap" profile runner.baseline=false profiling.timeline=native "artifacts.stage2_dir=$folder" "$@"
    echo "status $?"
    run=$folder/$(ls "$folder" | tail -n 1)
}

failed=0
for part in "$@"; do
    echo "== $part"
    case $part in
    torch)
        MODE=eager profile torch-eager runner=timeline profiling.layers=on -- "$python" "$here/graph_layers.py"
        eager=$run
        MODE=graph profile torch-graph runner=timeline -- "$python" "$here/graph_layers.py"
        "$python" "$here/layers.py" "$run"
        echo "-- eager against graph: kernels, calls and layers must be the same"
        "$python" "$here/layers.py" "$eager" "$run" || failed=1
        ;;
    vllm)
        profile vllm runner=timeline -- "$python" "$here/offline.py"
        "$python" "$here/layers.py" "$run"
        echo "-- without compilation"
        COMPILE=0 profile vllm-modules runner=timeline -- "$python" "$here/offline.py"
        "$python" "$here/layers.py" "$run"
        ;;
    counters)
        COMPILE=0 TOKENS=4 REQUESTS=4 profile vllm-counters run.counter_budget=60s run.mode=light runner.counters=true runner.operators=false -- "$python" "$here/offline.py"
        "$python" - "$run" <<'PY'
import json, pathlib, sys
run = pathlib.Path(sys.argv[1])
for phase in json.loads((run / "session.json").read_text())["phases"]:
    if phase["name"] in ("select", "counters"):
        print(phase["name"], phase["status"], phase.get("why"), phase.get("notes"))
for row in json.loads((run / "metrics.json").read_text())["counters"][:12]:
    print(row["stage"], row["kernel"][:60], row["duration_ns"], row["timeline_ratio"], row["bound"])
PY
        ;;
    *) echo "unknown part $part: torch, vllm or counters" >&2; exit 2 ;;
    esac
done
exit $failed
