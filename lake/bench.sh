#!/usr/bin/env bash
# Measures a lake: bytes per run, rate of `add`, and the times of the saved queries on roofgap-lake and DuckDB over the same files.
# Usage: lake/bench.sh FOLDER [RUNS]. FOLDER needs about 1 GB per million runs; a lake that is there is used again.
# The result is the table of docs/fleet.md. Needs Python with duckdb; PYTHON names it.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=${1:?usage: lake/bench.sh FOLDER [RUNS]}
runs=${2:-1000000}
python=${PYTHON:-${XDG_CACHE_HOME:-$HOME/.cache}/roofgap/lake/venv/bin/python}
program=${ROOFGAP_TEST_LAKE:-target/release/roofgap-lake}
if [ ! -x "$program" ]; then
    cargo build --release --quiet -p roofgap-lake
fi

if [ ! -e "$folder/lake/roofgap.lake.json" ]; then
    mkdir -p "$folder"
    began=$(date +%s%N)
    cargo run --release --quiet -p roofgap-lake --example synth_lake -- --runs "$runs" --to "$folder/lake" >"$folder/planted.json"
    echo "synthetic lake of $runs runs: $((($(date +%s%N) - began) / 1000000)) ms"
fi

PYTHONDONTWRITEBYTECODE=1 "$python" lake/bench.py "$program" "$folder"
