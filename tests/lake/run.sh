#!/usr/bin/env bash
# Compares the answers to the saved questions on DuckDB, ClickHouse (chdb) and, where Java is installed, Spark: before a release.
# The engines are from PyPI, in a virtual environment outside the clone. .ci/run runs the part with DuckDB.
# ROOFGAP_TEST_NO_SKIP=1 turns an engine that cannot run here into a failure.
set -euo pipefail
cd "$(dirname "$0")/../.."

missing=0
not_run() {
    echo "NOT RUN: $*"
    missing=1
}
env=${XDG_CACHE_HOME:-$HOME/.cache}/roofgap/lake/venv
[ -x "$env/bin/pip" ] || python3 -m venv "$env"
install() { "$env/bin/pip" install --quiet "$@"; }
install 'duckdb>=1.4' pandas
install 'chdb>=3.6' || not_run "ClickHouse: chdb cannot be installed"
if command -v java >/dev/null; then
    install 'pyspark>=4.0' || not_run "Spark: pyspark cannot be installed"
else
    not_run "Spark: Java is not installed"
fi

cargo build --quiet -p roofgap --features parquet
cargo build --quiet -p roofgap-testkit --example many_runs
target=$(cargo metadata --format-version 1 --no-deps | python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')
ROOFGAP_TEST_PROGRAMS=$target/debug "$env/bin/python" -m unittest discover --start-directory tests/lake --verbose
if [ "$missing" = 1 ] && [ "${ROOFGAP_TEST_NO_SKIP:-}" = 1 ]; then exit 1; fi
