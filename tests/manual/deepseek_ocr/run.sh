#!/usr/bin/env bash
# Profiles DeepSeek-OCR on a GPU and checks the run. See README.md.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
roofgap=${ROOFGAP:-$root/target/release/roofgap}
out=${OUT:-$root/tmp/deepseek_ocr}
python=${PYTHON:-python3}

[ -x "$roofgap" ] || { echo "$roofgap is missing: build it with cargo build --release, or set ROOFGAP" >&2; exit 2; }
mkdir -p "$out"
before=$(ls "$out")
"$roofgap" profile model=deepseek_ocr workload=hf "artifacts.stage2_dir=$out" "workload.python=$python" "$@"
status=$?
run=$(comm -13 <(printf '%s\n' "$before" | sort) <(ls "$out" | sort) | head -n 1)
[ -n "$run" ] || { echo "no run was written to $out (status $status)" >&2; exit 1; }
"$python" "$here/check.py" "$out/$run" --status "$status"
