#!/usr/bin/env bash
# Installs DuckDB, Polars and ClickHouse (chdb) from PyPI in a virtual environment outside the clone, and compares their answers with those of
# roofgap-lake. ROOFGAP_TEST_LAKE names the program; by default the debug build of lake/ is built.
# ROOFGAP_TEST_SPARK=1 adds Spark, before a release: it needs Java and several minutes.
# ROOFGAP_TEST_NO_SKIP=1 turns an engine that cannot run here into a failure. --install only installs.
set -euo pipefail
cd "$(dirname "$0")/../.."

missing=0
not_run() {
    echo "NOT RUN: $*"
    missing=1
}

if [ "${1:-}" != --install ] && [ -z "${ROOFGAP_TEST_LAKE:-}" ]; then
    cargo build --quiet -p roofgap-lake --bins --example synth_lake
    target=$(cargo metadata --format-version 1 --no-deps | python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')
    export ROOFGAP_TEST_LAKE=$target/debug/roofgap-lake
fi
# Without it every comparison would be skipped.
[ "${1:-}" = --install ] || [ -x "$ROOFGAP_TEST_LAKE" ] || { echo "$ROOFGAP_TEST_LAKE: no such program"; exit 1; }

env=${XDG_CACHE_HOME:-$HOME/.cache}/roofgap/lake/venv
if ! "$env/bin/python" -m pip --version >/dev/null 2>&1; then
    # What a failed attempt left has a Python without pip.
    rm -rf "$env"
    if ! python3 -m venv "$env"; then
        not_run "the saved queries on other engines, and the ingestion job: python3 has no venv"
        [ "${ROOFGAP_TEST_NO_SKIP:-}" != 1 ]
        exit
    fi
fi
install() { "$env/bin/pip" install --quiet --only-binary :all: "$@"; }
install 'duckdb>=1.4' || not_run "the saved queries on DuckDB: it cannot be installed"
install 'polars>=1.30' 'pyarrow>=20' || not_run "Polars: it cannot be installed"
install 'chdb>=3.6' || not_run "the saved queries on ClickHouse: chdb cannot be installed"
if [ "${ROOFGAP_TEST_SPARK:-}" != 1 ]; then
    echo "NOT RUN: Spark (the saved queries and the ingestion job): ROOFGAP_TEST_SPARK=1 asks for it"
elif command -v java >/dev/null; then
    # pyspark has no wheel, only a source archive.
    "$env/bin/pip" install --quiet 'pyspark>=4.0' || not_run "Spark: pyspark cannot be installed"
else
    not_run "Spark (the saved queries and the ingestion job): Java is not installed"
fi
if [ "${1:-}" = --install ]; then exit; fi

"$env/bin/python" -m unittest discover --start-directory lake/tests --verbose
if [ "$missing" = 1 ] && [ "${ROOFGAP_TEST_NO_SKIP:-}" = 1 ]; then exit 1; fi
