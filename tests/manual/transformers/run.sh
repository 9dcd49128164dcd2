#!/usr/bin/env bash
# Profiles transformers in three modes and compares tokens and rates with what the program prints. See README.md.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
roofgap=${ROOFGAP:-$root/target/release/roofgap}
out=${OUT:-$root/tmp/transformers}
python=${PYTHON:-python3}
[ $# -gt 0 ] || set -- eager static batching
export HF_HUB_OFFLINE=1 TRANSFORMERS_VERBOSITY=error

[ -x "$roofgap" ] || { echo "$roofgap is missing: build it with cargo build --release, or set ROOFGAP" >&2; exit 2; }
mkdir -p "$out"
failed=0
for mode in "$@"; do
    # The prefill is not synchronized, so that the program runs as it does by itself.
    timeout "${LIMIT:-100}" "$roofgap" profile runner=timeline runner.baseline=false profiling.timeline=native workload.annotate_sync=false \
        "artifacts.stage2_dir=$out/$mode" -- "$python" "$here/program.py" "$mode"
    status=$?
    run=$(ls -d "$out/$mode"/2* 2>/dev/null | tail -n 1)
    [ -n "$run" ] || { echo "$mode: no run was written (status $status)" >&2; failed=1; continue; }
    echo "== $mode: $run, status $status"
    "$python" "$here/check.py" "$run" || failed=1
done
exit $failed
