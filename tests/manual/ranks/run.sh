#!/usr/bin/env bash
# Profiles two ranks on one GPU and compares the collectives with those of the program. See README.md.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
roofgap=${ROOFGAP:-$root/target/release/roofgap}
out=${OUT:-$root/tmp/ranks}
python=${PYTHON:-python3}

[ -x "$roofgap" ] || { echo "$roofgap is missing: build it with cargo build --release, or set ROOFGAP" >&2; exit 2; }
mkdir -p "$out"
before=$(ls "$out")
timeout --signal=INT 100 "$roofgap" profile runner=timeline runner.baseline=false "artifacts.stage2_dir=$out" -- \
    "$python" -m torch.distributed.run --standalone --nproc-per-node=2 "$here/workload.py"
status=$?
run=$(comm -13 <(printf '%s\n' "$before" | sort) <(ls "$out" | sort) | head -n 1)
[ -n "$run" ] || { echo "no run was written to $out (status $status)" >&2; exit 1; }
echo "== $run, status $status"
"$python" "$here/check.py" "$out/$run"
