#!/usr/bin/env bash
# Runs the native collector for a long time under the stand-in CUPTI; needs no GPU. Prints memory once a minute.
# usage: soak.sh [LAUNCHES] [OUT]     100,000,000 launches take 10 to 60 minutes, and about 4 GB in OUT
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
launches=${1:-100000000}
out=${2:-$root/tmp/native-soak}
library=${ROOFGAP_INJECT:-$root/target/release/libroofgap_inject.so}
dump=${ROOFGAP_DUMP:-$root/target/release/examples/dump}
sources=$root/crates/roofgap-inject/tests/stand-in
mkdir -p "$out"
cc -O1 -o "$out/program" "$sources/program.c" -ldl -lpthread
cc -O1 -shared -fPIC -o "$out/libcupti.so" "$sources/cupti.c" -lpthread
export CUDA_INJECTION64_PATH=$library NVTX_INJECTION64_PATH=$library CUPTI_LIBRARY=$out/libcupti.so
export SOAK_LAUNCHES=$launches SOAK_LOG=1
for mode in windows all last; do
    folder=$out/$mode
    rm -rf "$folder"
    mkdir "$folder"
    case $mode in
    # In windows of 100,000 launches; all of it; only the last ten seconds.
    windows) set -- SOAK_WINDOW=100000 ROOFGAP_NATIVE_DORMANT=1 ;;
    all) set -- ROOFGAP_NATIVE_MAX_MB=16384 ;;
    last) set -- ROOFGAP_NATIVE_LAST_MS=10000 ;;
    esac
    said=$(env ROOFGAP_NATIVE_DIR="$folder" "$@" "$out/program" soak)
    echo "$mode: launches to record, KiB that the last two thirds added: $said; $(du -sh "$folder" | cut -f1)"
    # Kernels written and records dropped are all of the launches, except for the mode that keeps the last seconds.
    [ "$mode" = last ] || "$dump" --summary "$folder"/*.rgcap | grep -oE '"(kernel|call)": [0-9]+|"losses":\{[^}]*\}'
done
