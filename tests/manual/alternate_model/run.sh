#!/usr/bin/env bash
# Profiles a model that a configuration folder adds, and checks that every report names it. See README.md.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
roofgap=${ROOFGAP:-$root/target/release/roofgap}
out=${OUT:-$root/tmp/alternate_model}
python=${PYTHON:-python3}
conf=${CONF:-$here/conf}
limit=${LIMIT_S:-600}
[ $# -gt 0 ] || set -- model=llm/alt

[ -x "$roofgap" ] || { echo "$roofgap is missing: build it with cargo build --release, or set ROOFGAP" >&2; exit 2; }
mkdir -p "$out"
answer=$out/answer.json
began=$(date +%s)
timeout --signal=INT "$((limit + 60))" "$roofgap" profile --format json --config-dir "$conf" "artifacts.stage2_dir=$out" \
    "workload.python=$python" "$@" >"$answer"
status=$?
took=$(($(date +%s) - began))
[ -s "$answer" ] || { echo "no run was created (status $status)" >&2; exit 1; }
"$python" "$here/check.py" "$answer" || exit 1
run=$("$python" -c 'import json, sys; print(json.load(open(sys.argv[1]))["path"])' "$answer")
[ -n "${SKIP_SESSION_CHECK:-}" ] || "$python" "$here/../stage2_profile/check.py" session "$run" --status "$status" --took "$took" --limit "$limit"
