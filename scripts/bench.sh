#!/usr/bin/env bash
# Times roofgap and other tools on the same synthetic captures in one run, with peak memory, and prints ratios.
#
#   scripts/bench.sh                        everything: 1,000,000 kernels from nsys, 200,000 and 1,000,000 from Kineto, 10,000,000
#   scripts/bench.sh --quick                20,000 kernels, as a quick check
#   scripts/bench.sh --ours                 without the other tools
#   scripts/bench.sh --ours --ranks 64x100000  a job of 64 ranks against single ranks
#   scripts/bench.sh --repeat 5 --limit 900 runs of roofgap; time limit of another tool, s
#
# Needs cargo and python3. Uses nsys (or $NSYS), veloq and TraceLens if they are installed. nsys-ai and Holistic Trace
# Analysis are installed into a virtual environment in the work folder ($BENCH_DIR, default target/bench).
set -euo pipefail
cd "$(dirname "$0")/.."
target="${CARGO_TARGET_DIR:-target}"
work="${BENCH_DIR:-$target/bench}"
mkdir -p "$work"

cargo build --release -p roofgap
cargo build --release -p roofgap-testkit --example synth

ours=false
for argument in "$@"; do
    if [ "$argument" = --ours ]; then ours=true; fi
done
if [ "$ours" = false ] && [ ! -x "$work/venv/bin/nsys-ai" ]; then
    python3 -m venv "$work/venv"
    "$work/venv/bin/pip" install --quiet nsys-ai HolisticTraceAnalysis 'pandas<3'
fi
exec python3 scripts/bench.py --bin "$target/release" --work "$work" "$@"
