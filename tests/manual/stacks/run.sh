#!/usr/bin/env bash
# Planted causes of idle time, the cost of sampling stacks, and its functions beside those of a PyTorch trace. See README.md.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
roofgap=${ROOFGAP:-$root/target/release/roofgap}
out=${OUT:-$root/tmp/stacks}
python=${PYTHON:-python3}
rounds=${ROUNDS:-10} pairs=${PAIRS:-15}
# A cause, and after a dash the way in which the collector records calls.
causes=(sleep item lock collect tokenizer neighbour)
export HF_HUB_OFFLINE=1 PYTHONDONTWRITEBYTECODE=1
[ -x "$roofgap" ] || { echo "$roofgap is missing: build it with cargo build --release --features stacks, or set ROOFGAP" >&2; exit 2; }
mkdir -p "$out/runs"
out=$(cd "$out" && pwd)
rm -f "$out"/*.stop "$out"/*.go "$out"/*.log "$out"/*.windows
trap 'touch "$out/all.stop" "$out/decode.stop" "$out/watched.stop"' EXIT
say() { echo "[$SECONDS s] $*"; }

# All programs start at once; each has a core for its main thread.
for cause in "${causes[@]}"; do
    timeout 200 "$roofgap" watch --duty 1 -- "$python" "$here/planted.py" "$cause" "$out/$cause.log" "$out/all.stop" > "$out/$cause.out" 2>&1 &
done
# A decode that is sampled and not recorded: the collector is in another program below the same parent.
timeout 200 "$roofgap" watch --duty 1 -- bash -c "'$python' '$here/planted.py' sleep '$out/beside.log' '$out/decode.stop' &
    env -u CUDA_INJECTION64_PATH -u NVTX_INJECTION64_PATH -u PYTHONPATH ${PYTHONPATH:+PYTHONPATH=$PYTHONPATH} '$python' '$here/decode.py' '$out/decode.log' '$out/decode.go' '$out/decode.stop'
    wait" > "$out/decode.out" 2>&1 &
timeout 200 "$roofgap" watch --duty 1 -- "$python" "$here/decode.py" "$out/watched.log" "$out/watched.go" "$out/watched.stop" > "$out/watched.out" 2>&1 &
timeout 200 "$python" "$here/decode.py" --trace "$out/trace.json" > "$out/trace.out" 2>&1 &
trace=$!
ready() { for _ in $(seq 400); do [ -s "$out/$1.log" ] && return 0; sleep 0.2; done; say "$1 did not start"; tail -n 5 "$out/$1.out"; return 1; }
watched() { sed -n 's/.*watching process \([0-9]*\);.*/\1/p' "$out/$1.out" | head -n 1; }

capture() { # NAME PID OPTION...: one window, its run and options in NAME.windows
    local name=$1 process=$2
    shift 2
    mkdir -p "$out/runs/$name"
    timeout 60 "$roofgap" capture "$process" --out "$out/runs/$name" --format json "$@" > "$out/$name.last.json" 2>> "$out/$name.err" ||
        echo "capture of $name ended with status $?" >> "$out/$name.err"
    echo "$(ls -d "$out/runs/$name"/2* 2>/dev/null | tail -n 1) $*" >> "$out/$name.windows"
}

# 1. Planted causes, all programs at the same time.
of_cause() {
    ready "$1" || return
    local process=$(watched "$1")
    for _ in $(seq "$rounds"); do capture "$1" "$process" --stacks --for "${WINDOW:-1500ms}"; done
}
loops=()
for cause in "${causes[@]}"; do of_cause "$cause" & loops+=($!); done
wait "${loops[@]}"
touch "$out/all.stop"
say "planted causes are done"
"$python" "$here/check.py" planted "$out"
failed=$?

# 2. Sampled to not sampled, in pairs in one process that is not recorded.
in_pairs() { # WHAT PAIRS
    capture first "$process" --for 300ms "--$1"
    for pair in $(seq "$2"); do
        for side in $((pair % 2)) $(((pair + 1) % 2)); do
            if [ "$side" = 1 ]; then capture "pairs-$1" "$process" --for 1s "--$1"; else capture "pairs-$1" "$process" --for 1s; fi
        done
    done
    say "pairs with $1 are done"
    "$python" "$here/check.py" pairs "$out" "$1" || failed=1
}
if ready decode && ready beside; then
    touch "$out/decode.go"
    sleep 2
    process=$(watched decode)
    in_pairs stacks "$pairs"
    in_pairs counters "${COUNTER_PAIRS:-6}"
    touch "$out/decode.stop"
fi

# 3. Functions by samples beside those of the trace.
wait "$trace"
if ready watched; then
    touch "$out/watched.go"
    sleep 2
    process=$(watched watched)
    capture watched "$process" --stacks --for "${LONG:-8s}"
    capture counted "$process" --stacks --counters --for 3s
    touch "$out/watched.stop"
    timeout 60 "$roofgap" analyze "$out/trace.json" --format json > "$out/trace-metrics.json" 2> "$out/trace.err"
    "$python" "$here/check.py" functions "$out" || failed=1
    "$python" "$here/check.py" counted "$out" || failed=1
    run=$(ls -d "$out"/runs/watched/2* | tail -n 1)
    timeout 30 "$roofgap" analyze "$run" --show host > "$out/host.txt" 2>&1
fi
say "done, status $failed"
wait
exit $failed
