#!/usr/bin/env bash
# Reads the Parquet tables with DuckDB, pandas and Polars from PyPI, in a virtual environment.
set -euo pipefail
cd "$(dirname "$0")/../../.."
env=$(mktemp -d)
trap 'rm -rf "$env"' EXIT
if ! { python3 -m venv "$env" && "$env/bin/pip" install --quiet duckdb pandas pyarrow polars; } >"$env/log" 2>&1; then
  echo "parquet readers skipped: duckdb, pandas, pyarrow and polars are not available"
  exit 0
fi
PATH="$env/bin:$PATH" cargo test --quiet --package roofgap-report --test reports others_read_the_tables -- --ignored --nocapture
