#!/usr/bin/env bash
# Makes docs/examples/deepseek_ocr_session on a GPU machine: a whole session of DeepSeek-OCR (real architecture, random weights) with nsys,
# the native collector, operators and counters, packed without host names, paths and captures.
#
#   scripts/example-session.sh [OVERRIDE...]      then: tar -C docs/examples -xJf OUT/deepseek_ocr_session.tar.xz
#
# OUT is the folder of the pack (default: tmp), ROOFGAP the program (default: target/release/roofgap), PYTHON that of torch and transformers.
# It takes less than four minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(realpath -m "${OUT:-tmp}")
roofgap=$(realpath -s "${ROOFGAP:-target/release/roofgap}")
name=deepseek_ocr_session
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mkdir -p "$out"
"$roofgap" doctor >"$out/doctor.txt" 2>&1 || echo "doctor found a problem; continuing" >&2
status=0
# As a user would: all that is named is the model, and what keeps the session short.
(cd "$work" && timeout --signal=INT 215 "$roofgap" profile model=deepseek_ocr workload=hf workload.python="${PYTHON:-python3}" \
    workload.tokens=32 run.counter_budget=45s "$@") >"$out/session.txt" 2>&1 || status=$?
tail -n 60 "$out/session.txt"
run=$(find "$work/tmp/stage2" -mindepth 1 -maxdepth 1 -type d -name '2*' | sort | tail -n 1)
[ -s "$run/metrics.json" ] || { echo "no run to pack: status $status" >&2; exit 1; }
python3 tests/manual/stage2_profile/check.py session "$run" --status "$status" --took 0 --limit 1 || true

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
# What is never packed, because it may hold what no rule knows: here all of it is known.
for file in session.json env.json config.yaml inputs.yaml agreement.json; do
    [ -s "$run/$file" ] && sed "s#$work#.#g; s#$HOME#~#g; s#$PWD#.#g" "$run/$file" >"$work/$name/$file"
done
cp "$found/metrics.json" "$work/$name/metrics.json"
# The page without its timeline, as scripts/examples.sh writes it.
"$roofgap" report --quiet "$work/$name" >/dev/null 2>&1 || [ $? -eq 3 ]
gzip -9n "$work/$name/metrics.json"

tar -C "$work" -cJf "$out/$name.tar.xz" "$name"
du -h "$out/$name.tar.xz"
echo "status of the session: $status"
cat "$work/$name/stakeholder_summary.md"
exit "$status"
