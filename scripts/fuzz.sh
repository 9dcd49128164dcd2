#!/usr/bin/env bash
# Coverage-guided fuzzing of every reader, the HTTP request and the MCP message: scripts/fuzz.sh [SECONDS [TARGET...]]
# Before a release: 600 s for each target, the default. Needs a C++ compiler for libFuzzer; any stable Rust will do.
# PROFILE=dev builds faster and tries fewer inputs a second.
# An input that fails is left in testkit/fuzz/crashes/TARGET, where the tests of the testkit try it again.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-600}
shift || true
profile=${PROFILE:-release}
built=${profile/#dev/debug}
host=$(rustc -vV | sed -n 's/^host: //p')
work=$PWD/target/fuzz
flags=(
    -Cpasses=sancov-module
    -Cllvm-args=-sanitizer-coverage-level=4
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
    -Cllvm-args=-sanitizer-coverage-pc-table
    -Cllvm-args=-sanitizer-coverage-trace-compares
    -Ccodegen-units=1
    --cfg=fuzzing
)
# Only the fuzzer is instrumented: with --target, build scripts are not.
RUSTFLAGS="${flags[*]}" cargo build --quiet --profile "$profile" --target "$host" --target-dir "$work/build" \
    -p roofgap-testkit --features coverage --example coverage
cargo run --quiet -p roofgap-testkit --example fuzz -- --seeds "$work/seeds"

[ $# -gt 0 ] || set -- $(ls "$work/seeds")
failed=()
for target in "$@"; do
    crashes=testkit/fuzz/crashes/$target
    mkdir -p "$work/corpus/$target" "$crashes"
    echo "==> $target, $seconds s"
    # What was found before is a start: the corpus is kept between runs.
    ROOFGAP_FUZZ_TARGET=$target "$work/build/$host/$built/examples/coverage" \
        "$work/corpus/$target" "$work/seeds/$target" "$crashes" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=4096 \
        -artifact_prefix="$crashes/" -print_final_stats=1 >"$work/$target.log" 2>&1 || failed+=("$target")
    grep -E 'cov:|stat::number_of_executed_units|panicked|SUMMARY' "$work/$target.log" | tail -4
    rmdir "$crashes" 2>/dev/null || true
done
[ ${#failed[@]} -eq 0 ] || { echo "failed: ${failed[*]}; the inputs are in testkit/fuzz/crashes"; exit 1; }
