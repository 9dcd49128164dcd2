#!/usr/bin/env bash
# Writes the reports in docs/examples from captures in the repository, and those of the session from its analysis. A test checks that
# they are current.
#
#   scripts/examples.sh [DEST]      default: docs/examples
#
# ROOFGAP names the program; by default it is built first.
set -euo pipefail
cd "$(dirname "$0")/.."
dest=${1:-docs/examples}
if [ -z "${ROOFGAP:-}" ]; then
    cargo build --quiet --package roofgap
    ROOFGAP=$(cargo metadata --format-version 1 --no-deps | python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')/debug/roofgap
fi

"$ROOFGAP" analyze --quiet fixtures/h200/llama4.sqlite.gz fixtures/ncu/llama4_light_raw_base.csv.gz --model crates/roofgap/demo/config.json \
    --set workload.prompt_tokens=256 --set workload.tokens=8 --out "$dest/llama_h200" >/dev/null
"$ROOFGAP" analyze --quiet fixtures/h200/dsocr2.sqlite.gz --model deepseek_ocr2 --set workload.prompt_tokens=512 --set workload.tokens=8 \
    --out "$dest/deepseek_ocr2_h200" >/dev/null
"$ROOFGAP" analyze --quiet fixtures/vllm/vllm_dense_graph.kineto.json.gz --out "$dest/vllm_h200" >/dev/null
# Its captures are left out, which is status 3.
session=docs/examples/deepseek_ocr_session
if [ -d "$session" ]; then
    [ "$dest" = docs/examples ] || cp -r "$session" "$dest/"
    gzip -dc "$session/metrics.json.gz" >"$dest/deepseek_ocr_session/metrics.json"
    "$ROOFGAP" report --quiet "$dest/deepseek_ocr_session" >/dev/null 2>&1 || [ $? -eq 3 ]
fi
# Large, and the same for every capture in form; the schema describes it.
rm "$dest"/*/metrics.json
# The pages of the larger captures are as large as the captures.
rm "$dest"/deepseek_ocr2_h200/report.html "$dest"/vllm_h200/report.html
