#!/usr/bin/env bash
# Profiles a model twice on a GPU and checks both runs. See README.md.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
roofgap=${ROOFGAP:-$root/target/release/roofgap}
out=${OUT:-$root/tmp/stage2_profile}
python=${PYTHON:-python3}
limit=${LIMIT_S:-600}
[ $# -gt 0 ] || set -- model=deepseek_ocr2 workload=hf

[ -x "$roofgap" ] || { echo "$roofgap is missing: build it with cargo build --release, or set ROOFGAP" >&2; exit 2; }
mkdir -p "$out"
"$roofgap" doctor || echo "doctor found a problem; continuing" >&2

runs=()
for turn in 1 2; do
    before=$(ls "$out" 2>/dev/null)
    began=$(date +%s)
    timeout --signal=INT "$((limit + 60))" "$roofgap" profile "artifacts.stage2_dir=$out" "workload.python=$python" "$@"
    status=$?
    took=$(($(date +%s) - began))
    run=$(comm -13 <(printf '%s\n' "$before" | sort) <(ls "$out" | sort) | head -n 1)
    [ -n "$run" ] || { echo "session $turn wrote no run to $out (status $status)" >&2; exit 1; }
    echo "session $turn: $run, status $status, $took s"
    "$python" "$here/check.py" session "$out/$run" --status "$status" --took "$took" --limit "$limit" || exit 1
    runs+=("$out/$run")
done
"$python" "$here/check.py" pair "${runs[0]}" "${runs[1]}"
