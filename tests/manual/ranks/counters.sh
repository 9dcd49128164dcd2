#!/usr/bin/env bash
# Measures the counters of one of two ranks on one GPU, once for each rank. See README.md.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
roofgap=${ROOFGAP:-$root/target/release/roofgap}
out=${OUT:-$root/tmp/ranks}
python=${PYTHON:-python3}

[ -x "$roofgap" ] || { echo "$roofgap is missing: build it with cargo build --release, or set ROOFGAP" >&2; exit 2; }
failed=0
for rank in 0 1; do
    runs=$out/counters-$rank
    rm -rf "$runs"
    STEPS=${STEPS:-5} timeout --signal=INT 250 "$roofgap" profile run.mode=deep runner.baseline=false runner.operators=false \
        run.top_n_kernels=4 run.counter_budget=2m "profiling.ncu.rank=$rank" "artifacts.stage2_dir=$runs" -- \
        "$python" -m torch.distributed.run --standalone --nproc-per-node=2 "$here/workload.py"
    echo "== rank $rank, status $?"
    "$python" "$here/check_counters.py" "$runs"/*/ --rank "$rank" || failed=1
done
exit $failed
