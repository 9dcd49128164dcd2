#!/usr/bin/env bash
# Profiles workloads, tries the changes of their findings and checks the results. See README.md.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
roofgap=${ROOFGAP:-$root/target/release/roofgap}
out=${OUT:-$root/tmp/try}
python=${PYTHON:-python3}
budget=${BUDGET:-4m}
repeats=${REPEATS:-3}
[ $# -gt 0 ] || set -- qwen3 deepseek_ocr2 vllm
export HF_HUB_OFFLINE=1 TRANSFORMERS_VERBOSITY=error
export VLLM_USE_FLASHINFER_SAMPLER=${VLLM_USE_FLASHINFER_SAMPLER:-0} VLLM_NO_USAGE_STATS=1 VLLM_LOGGING_LEVEL=${VLLM_LOGGING_LEVEL:-WARNING}
# Few graphs and rounds: starting vLLM takes longer than what is measured.
export SIZES=${SIZES:-1,8,16} ROUNDS=${ROUNDS:-6}

[ -x "$roofgap" ] || { echo "$roofgap is missing: build it with cargo build --release, or set ROOFGAP" >&2; exit 2; }
failed=0
for what in "$@"; do
    case $what in
        qwen3) workload=(model=qwen3_0_6b workload.prompt_tokens=128 workload.tokens=64) ;;
        deepseek_ocr2) workload=(model=deepseek_ocr2 workload.tokens=32) ;;
        vllm) workload=(-- "$python" "$root/tests/manual/vllm/offline.py" --enforce-eager) ;;
        *) echo "no such workload: $what (qwen3, deepseek_ocr2, vllm)" >&2; exit 2 ;;
    esac
    mkdir -p "$out/$what"
    "$roofgap" profile runner=timeline profiling.timeline=native "artifacts.stage2_dir=$out/$what" "workload.python=$python" "${workload[@]}"
    status=$?
    run=$(ls -d "$out/$what"/2* 2>/dev/null | tail -n 1)
    [ -n "$run" ] || { echo "$what: no run was written (status $status)" >&2; failed=1; continue; }
    echo "== $what: $run, status $status"
    "$roofgap" try "$run" ${FINDINGS:-launch-bound} --yes --budget "$budget" --repeats "$repeats"
    echo "== $what: try ended with status $?"
    "$python" "$here/check.py" "$run" || failed=1
done
exit $failed
