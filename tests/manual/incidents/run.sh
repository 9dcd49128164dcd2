#!/usr/bin/env bash
# Plants causes of slow steps in a small torch program under `roofgap watch --record`, and compares what was found. See README.md.
# usage: run.sh [OUT]   (at most 3 minutes; REPEATS, default 1, times each cause: at most 20 incidents an hour are kept)
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
roofgap=${ROOFGAP:-$root/target/release/roofgap}
out=${1:-$root/tmp/incidents}
python=${PYTHON:-python3}
[ -x "$roofgap" ] || { echo "$roofgap is missing: build it with cargo build --release --features stacks, or set ROOFGAP" >&2; exit 2; }
"$python" -c 'import torch; assert torch.cuda.is_available(), "torch sees no GPU"' || exit 2
rm -rf "$out" && mkdir -p "$out/runs" || exit 2
trap 'exit 130' INT TERM
export PLANTED="$out/planted.jsonl" REPEATS="${REPEATS:-1}"
# The time of steps without the recorder, for its overhead.
MODE=quiet "$python" "$here/planted.py" >"$out/quiet.json" 2>"$out/quiet.log"
MODE=quiet "$roofgap" watch --record --out "$out/none" -- "$python" "$here/planted.py" >"$out/quiet_recorded.json" 2>"$out/quiet_recorded.log"
timeout --signal=INT 240 "$roofgap" watch --record --hang 1s --out "$out/runs" -- "$python" "$here/planted.py" \
    >"$out/program.log" 2>"$out/recorder.log"
echo "the program ended with status $?"
"$roofgap" runs list --dir "$out/runs" >"$out/incidents.txt" 2>&1
"$python" "$here/check.py" "$out" | tee "$out/table.txt"
status=${PIPESTATUS[0]}
# Captures are large; documents say what was found, and one run of each cause is kept whole.
(cd "$out" && tar -czf results.tar.gz --exclude='runs/*/native/*' --exclude='*.html' ./*.txt ./*.log ./*.json ./*.jsonl runs $(cat examples.list 2>/dev/null))
echo "results: $out/results.tar.gz"
exit "$status"
