#!/usr/bin/env bash
# Profiles programs of equal steps that name nothing, and compares their loop with their own clock, on a GPU. See README.md.
# usage: run.sh [PROGRAM...]
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
roofgap=${ROOFGAP:-$root/target/release/roofgap}
out=${OUT:-$root/tmp/loops}
python=${PYTHON:-python3}
[ -x "$roofgap" ] || { echo "$roofgap is missing: build it with cargo build --release, or set ROOFGAP" >&2; exit 2; }
[ $# -gt 0 ] || set -- $("$python" "$here/programs.py")
for program in "$@"; do
    mkdir -p "$out/$program"
    rm -f "$out/$program/clock.jsonl"
    # Its own clock without roofgap.
    LOOPS_CLOCK=$out/$program/clock.jsonl "$python" "$here/programs.py" "$program"
    LOOPS_CLOCK=$out/$program/phases.jsonl "$roofgap" profile runner=timeline "artifacts.stage2_dir=$out/$program" -- \
        "$python" "$here/programs.py" "$program" >"$out/$program/log.txt" 2>&1
    echo "$program: status $?, $SECONDS s"
done
"$python" "$here/check.py" "$out" "$@"
