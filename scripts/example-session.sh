#!/usr/bin/env bash
# Profiles DeepSeek-OCR with counters on a GPU machine, and packs what docs/examples/deepseek_ocr_session has of it: the reports, the
# records and the analysis, without host names, paths and captures.
#
#   scripts/example-session.sh FILE.tar.gz [OVERRIDE...]      then: tar -C docs/examples -xzf FILE.tar.gz
#
# ROOFGAP names the program (default: target/release/roofgap). It needs torch, transformers, nsys and ncu, and takes about five minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
pack=$(realpath -m "${1:?usage: scripts/example-session.sh FILE.tar.gz [OVERRIDE...]}")
shift
roofgap=${ROOFGAP:-$PWD/target/release/roofgap}
name=deepseek_ocr_session
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

status=0
"$roofgap" profile model=deepseek_ocr workload.tokens=64 run.counter_budget=150s artifacts.stage2_dir="$work/runs" "$@" || status=$?
run=$(find "$work/runs" -mindepth 1 -maxdepth 1 -type d -name '2*' | sort | tail -n 1)
[ -s "$run/metrics.json" ] || { echo "no run to pack: status $status" >&2; exit 1; }
"$roofgap" runs show "$run" || true

# Packs what can be shared. Status 3 names files that could not be packed.
"$roofgap" runs scrub "$run" --pack "$work/shared.tar.gz" || [ $? -eq 3 ]
mkdir "$work/unpacked" "$work/$name"
tar -C "$work/unpacked" -xzf "$work/shared.tar.gz"
found=$(dirname "$(find "$work/unpacked" -name metrics.json | head -n 1)")
for file in stakeholder_summary.md report.md kernels.md operators.md ncu/plan.json; do
    [ -s "$found/$file" ] || { echo "the bundle lacks $file" >&2; continue; }
    mkdir -p "$(dirname "$work/$name/$file")"
    cp "$found/$file" "$work/$name/$file"
done
gzip -9nc "$found/metrics.json" >"$work/$name/metrics.json.gz"

du -sh "$work/$name"
tar -C "$work" -czf "$pack" "$name"
echo "status of the session: $status"
echo "packed: $pack"
wc -l "$work/$name/stakeholder_summary.md"
cat "$work/$name/stakeholder_summary.md"
