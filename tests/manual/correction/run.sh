#!/usr/bin/env bash
# Compares stages without their profiler with runs that had none, on a GPU. See README.md.
# usage: run.sh OUT [PROGRAM...]     PROGRAM: eager, graphs, ocr2
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
roofgap=${ROOFGAP:-$root/target/release/roofgap}
python=${PYTHON:-python3}
out=$1
shift
[ $# -gt 0 ] || set -- eager graphs ocr2
[ -x "$roofgap" ] || { echo "$roofgap is missing: build it with cargo build --release, or set ROOFGAP" >&2; exit 2; }
for program in "$@"; do
    case $program in
    eager) keys=(model=qwen3_0_6b) ;;
    graphs) keys=(model=qwen3_0_6b workload.cuda_graphs=true) ;;
    ocr2) keys=(model=deepseek_ocr2) ;;
    *) echo "unknown program: $program" >&2; exit 2 ;;
    esac
    # The unprofiled run of one session, and one between the two, check the other session.
    for session in nsys none native; do
        folder=$out/$program/$session
        case $session in
        nsys) how=(runner.counters=false profiling.timeline=nsys) ;;
        none) how=(runner=unwatched) ;;
        native) how=(runner=timeline profiling.timeline=native) ;;
        esac
        mkdir -p "$folder"
        "$roofgap" profile "${keys[@]}" workload=hf workload.tokens=48 workload.repeats=4 "${how[@]}" "artifacts.stage2_dir=$folder" >"$folder/log.txt" 2>&1
        echo "$program $session: status $?, $SECONDS s"
    done
done
"$python" "$here/check.py" "$out" --roofgap "$roofgap"
