#!/usr/bin/env bash
# Profiles shrunken models of six kinds with random weights, and checks phases, MFU, MBU and the names of layers. See README.md.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
roofgap=${ROOFGAP:-$root/target/release/roofgap}
out=${OUT:-$root/tmp/models}
python=${PYTHON:-python3}
export HF_HUB_OFFLINE=1 TRANSFORMERS_VERBOSITY=error

[ -x "$roofgap" ] || { echo "$roofgap is missing: build it with cargo build --release, or set ROOFGAP" >&2; exit 2; }
mkdir -p "$out"
"$python" "$here/configs.py" "$out/configs" >"$out/configs.txt" || exit 2
failed=0
while read -r folder; do
    name=$(basename "$folder")
    [ $# -eq 0 ] || [[ " $* " == *" $name "* ]] || continue
    timeout "${LIMIT:-60}" "$roofgap" profile run.mode=light runner=timeline profiling.timeline=native profiling.layers=on workload=hf \
        "model.target=$folder" "workload.python=$python" workload.prompt_tokens=16 workload.tokens=16 workload.batch=2 \
        "artifacts.stage2_dir=$out/$name" >"$out/$name.log" 2>&1
    status=$?
    run=$(ls -d "$out/$name"/2* 2>/dev/null | tail -n 1)
    [ -n "$run" ] || { echo "FAILED  $name: no run was written (status $status)"; tail -n 5 "$out/$name.log"; failed=1; continue; }
    "$python" "$here/check.py" "$run" "$name" "$status" || failed=1
done <"$out/configs.txt"
exit $failed
