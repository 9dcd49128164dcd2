#!/usr/bin/env bash
# Vitals on a GPU, in at most six minutes: findings of free captures, and joules per token. See README.md.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
out=${OUT:-$root/tmp/vitals}
python=${PYTHON:-python3}
work=${WORK:-/tmp/roofgap-vitals}
limit=${LIMIT_S:-360}
roofgap=${ROOFGAP:-$root/target/release/roofgap}
if [ -x "$root/.gpu/setup.sh" ]; then
    mkdir -p "$out"
    bash "$root/.gpu/setup.sh" > "$out/setup.txt" 2>&1
    [ -e "$root/.gpu/bin/roofgap" ] && roofgap=${ROOFGAP:-$root/.gpu/bin/roofgap} && chmod +x "$roofgap"
fi
[ -x "$roofgap" ] || { echo "$roofgap is missing: build it with cargo build --release --features stacks, or set ROOFGAP" >&2; exit 2; }
export HF_HUB_OFFLINE=1 TRANSFORMERS_VERBOSITY=error PYTHONDONTWRITEBYTECODE=1
mkdir -p "$out" "$work/free" "$work/tokens"
rm -f "$work/stop"
left() { echo $((limit - SECONDS)); }
say() { echo "== $* ($SECONDS s)"; }
failed=0
trap 'touch "$work/stop"' EXIT

say "free captures"
timeout 120 "$roofgap" watch --duty 1 -- "$python" "$here/program.py" "$work/stop" > "$out/watch.txt" 2>&1 &
for _ in $(seq 60); do grep -q "watching process" "$out/watch.txt" && break; sleep 0.5; done
process=$(sed -n 's/.*watching process \([0-9]*\);.*/\1/p' "$out/watch.txt" | head -n 1)
# The first one waits until the model is made.
for _ in $(seq 120); do timeout 20 "$roofgap" capture "$process" --for 200ms --out "$work/first" > "$work/capture.txt" 2>&1 && break; sleep 1; done
for turn in $(seq "${ROUNDS:-20}"); do
    [ "$SECONDS" -lt $((limit - 180)) ] || { echo "time is up after $((turn - 1)) captures"; break; }
    timeout 20 "$roofgap" capture "$process" --for "${WINDOW:-1200ms}" --out "$work/free" > "$work/capture.txt" 2>> "$out/capture.err" || echo "capture $turn: status $?"
done
touch "$work/stop"
wait
"$python" "$here/check.py" free "$work" > "$out/free.txt" 2>&1 || failed=1
cat "$out/free.txt"

say "joules per token"
cell() { # NAME OVERRIDE...
    local name=$1
    shift
    [ "$(left)" -gt 25 ] || { echo "$name: no time left"; return; }
    timeout "$(left)" "$roofgap" profile -q workload=hf runner=timeline profiling.timeline=native "artifacts.stage2_dir=$work/tokens/$name" \
        "$@" > "$out/$name.txt" 2>&1 || echo "$name: status $?"
    say "$name"
}
for batch in 1 32 8; do
    cell "dense-$batch" model=qwen3_1_7b workload.prompt_tokens=2048 workload.tokens=48 workload.repeats=4 "workload.batch=$batch"
    cell "experts-$batch" model=qwen3_30b_a3b +model.set.num_hidden_layers=8 workload.prompt_tokens=2048 workload.tokens=96 workload.repeats=4 "workload.batch=$batch"
done
"$python" "$here/check.py" tokens "$work" > "$out/tokens.txt" 2>&1 || failed=1
cat "$out/tokens.txt"

(cd "$work" && find . \( -name metrics.json -o -name session.json -o -path '*/vitals/*' -o -name 'workload*.json' \) -print0 |
    tar czf "$out/vitals.tgz" --null -T -)
ls -la "$out/vitals.tgz"
say "done, status $failed"
exit $failed
