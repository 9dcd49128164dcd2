#!/usr/bin/env bash
# Measures the native collector on a GPU: its overhead compared with nsys and torch.profiler, a kill, and 2,000,000 kernels.
# usage: run.sh [OUT] [more arguments of measure.py]
# The library and its reader come from target/release, or from ROOFGAP_INJECT and ROOFGAP_DUMP if they were built elsewhere.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
out=${1:-$root/tmp/native-manual}
[ $# -gt 0 ] && shift
library=${ROOFGAP_INJECT:-$root/target/release/libroofgap_inject.so}
dump=${ROOFGAP_DUMP:-$root/target/release/examples/dump}
if [ ! -e "$library" ] || [ ! -e "$dump" ]; then
    (cd "$root" && cargo build --release -p roofgap-inject -p roofgap-wire --lib --example dump) || {
        echo "neither built here nor buildable: cargo build --release -p roofgap-inject -p roofgap-wire --lib --example dump" >&2
        exit 2
    }
fi
python=${PYTHON:-python3}
"$python" -c 'import torch; assert torch.cuda.is_available(), "torch sees no GPU"' || exit 2
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null
# Only our own messages of the loader, if it has any.
ldd "$library" | grep 'not found' && exit 2
exec "$python" "$here/measure.py" --library "$library" --dump "$dump" --out "$out" "$@"
