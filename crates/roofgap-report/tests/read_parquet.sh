#!/usr/bin/env bash
# Reads the Parquet tables with DuckDB, pandas and Polars from PyPI, in a virtual environment.
set -euo pipefail
cd "$(dirname "$0")/../../.."
env=$(mktemp -d)
trap 'rm -rf "$env"' EXIT
if ! { python3 -m venv "$env" && "$env/bin/pip" install --quiet duckdb pandas pyarrow polars; } >"$env/log" 2>&1; then
  echo "parquet readers not tested: cannot install duckdb, pandas, pyarrow and polars" >&2
  [ "${ROOFGAP_TEST_NO_SKIP:-}" != 1 ]
  exit
fi
PATH="$env/bin:$PATH" cargo test --quiet --package roofgap-report --test reports with_duckdb -- --ignored --nocapture
