#!/usr/bin/env bash
# Measures everything that docs/h200.md says of the native collector, on a GPU, in about six minutes: a dormant collector against none,
# the ways of recording in pairs, and the kernels of a recording against nsys.
# usage: run_all.sh [OUT] [--short]     --short: the most important rows, in two and a half minutes
# Needs what run.sh needs, and a C compiler or ROOFGAP_LAUNCHES (launches.c, compiled).
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
out=${1:-$root/tmp/native-all}
export ROOFGAP_INJECT=${ROOFGAP_INJECT:-$root/target/release/libroofgap_inject.so}
export ROOFGAP_DUMP=${ROOFGAP_DUMP:-$root/target/release/examples/dump}
export PYTHONUNBUFFERED=1
python=${PYTHON:-python3}
for file in "$ROOFGAP_INJECT" "$ROOFGAP_DUMP"; do
    [ -e "$file" ] || {
        echo "$file is missing: cargo build --release -p roofgap-inject -p roofgap-wire --lib --example dump" >&2
        exit 2
    }
done
dormant=70 pairs=205 only=()
[ "${2:-}" = --short ] && dormant=40 pairs=110 only=(--only 'default;duty cycle, 2 of 32 steps;duty cycle, 8 of 128 steps')
mkdir -p "$out"
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
echo "== dormant against none"
timeout 120 "$python" "$here/dormant.py" "$out" --budget $dormant 2>&1 | tee "$out/dormant.log"
echo "== in pairs"
timeout 230 "$python" "$here/pairs.py" "$out" --budget $pairs "${only[@]}" 2>&1 | tee "$out/pairs.log"
[ "${2:-}" = --short ] && exit
echo "== kernels against nsys"
timeout 90 "$python" "$here/measure.py" --library "$ROOFGAP_INJECT" --dump "$ROOFGAP_DUMP" --out "$out/same" --rounds 1 --repeats 2 --tokens 16 \
    --only native-eager,nsys --skip killed,many 2>&1 | tee "$out/same.log"
