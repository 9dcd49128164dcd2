#!/usr/bin/env bash
# Profiles a vLLM program with the native collector and with nsys, and compares its tokens. See README.md.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
roofgap=${ROOFGAP:-$root/target/release/roofgap}
out=${OUT:-$root/tmp/vllm}
python=${PYTHON:-python3}
[ $# -gt 0 ] || set -- native nsys
export VLLM_USE_FLASHINFER_SAMPLER=${VLLM_USE_FLASHINFER_SAMPLER:-0} HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 VLLM_LOGGING_LEVEL=${VLLM_LOGGING_LEVEL:-WARNING}

[ -x "$roofgap" ] || { echo "$roofgap is missing: build it with cargo build --release, or set ROOFGAP" >&2; exit 2; }
mkdir -p "$out"
failed=0
for tool in "$@"; do
    before=$(ls "$out")
    "$roofgap" profile runner=timeline "profiling.timeline=$tool" "artifacts.stage2_dir=$out" -- "$python" "$here/offline.py"
    status=$?
    run=$(comm -13 <(printf '%s\n' "$before" | sort) <(ls "$out" | sort) | head -n 1)
    [ -n "$run" ] || { echo "$tool: no run was written to $out (status $status)" >&2; exit 1; }
    echo "== $tool: $run, status $status"
    "$python" "$here/check.py" "$out/$run" --tool "$tool" || failed=1
done
exit $failed
