#!/usr/bin/env bash
# Times programs with and without their planted cause, and profiles those with it, on a GPU. See README.md.
# usage: run.sh [PROGRAM...]     by default all, the most useful first, until DEADLINE (440 s)
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
roofgap=$(realpath "${ROOFGAP:-$root/target/release/roofgap}")
python=${PYTHON:-python3}
out=${OUT:-$root/tmp/pairs}
# The rest of the time is for the last session, at most 40 s, and the archives.
deadline=${DEADLINE:-440}
most_bytes=$((15 << 20))
export PYTHONDONTWRITEBYTECODE=1 TORCHINDUCTOR_COMPILE_THREADS=1
[ -x "$roofgap" ] || { echo "$roofgap is missing: build it with cargo build --release, or set ROOFGAP" >&2; exit 2; }
mkdir -p "$out" && out=$(cd "$out" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/runs" "$work/metrics"
touch "$out/pairs.jsonl"
say() { echo "[$SECONDS s] $*" | tee -a "$work/metrics/sessions.txt"; }
[ $# -gt 0 ] || set -- $(sed -n 's/^def \(.*\)(bad):$/\1/p' "$here/programs.py")

# An error of CUDA ends the process; the next one goes on behind the program that failed.
for _ in 1 2 3; do
    timeout 200 "$python" "$here/programs.py" all-pairs "$out/pairs.jsonl" "$@" 2>>"$work/metrics/pairs.log" && break
done
say "$(grep -c bad_ms "$out/pairs.jsonl") pairs, $(grep -c '"error"' "$out/pairs.jsonl") failed"
grep '"error"' "$out/pairs.jsonl"

for name in "$@"; do
    if [ "$SECONDS" -gt "$deadline" ]; then
        say "not profiled for want of time: $name"
        continue
    fi
    began=$SECONDS
    timeout -k 5 40 "$roofgap" profile --dir "$work/$name" runner=timeline profiling.timeline=native -- \
        "$python" "$here/programs.py" "$name" bad >"$work/metrics/$name.log" 2>&1
    say "$name: status $?, $((SECONDS - began)) s"
    run=$(ls -d "$work/$name"/2* 2>/dev/null | tail -n 1)
    [ -f "$run/session.json" ] || continue
    mv "$run" "$work/runs/$name"
    cp "$work/runs/$name/metrics.json" "$work/metrics/$name.json"
done

# Four archives of about the same size, each with its largest run first.
find "$work/runs" -mindepth 1 -maxdepth 1 -exec du -sb {} + | sort -rn | awk -v to="$work/part-" '{
    least = 1
    for (part = 2; part <= 4; part++) if (bytes[part] < bytes[least]) least = part
    bytes[least] += $1
    sub(".*/", "")
    print "runs/" $0 > (to least)
}'
pack() { # PART
    local archive="$out/captures-$1.tar.xz"
    while [ -s "$work/part-$1" ]; do
        tar -C "$work" --exclude='*.html' --exclude='metrics.json' -T "$work/part-$1" -c | xz -T4 --block-size=4MiB >"$archive"
        [ "$(stat -c %s "$archive")" -gt "$most_bytes" ] || return
        echo "too large, left out: $(sed -n 1p "$work/part-$1")" >>"$work/metrics/sessions.txt"
        sed -i 1d "$work/part-$1"
        rm "$archive"
    done
}
for part in 1 2 3 4; do pack "$part" & done
wait
tar -C "$work" -cJf "$out/metrics.tar.xz" metrics
say "done"
ls -l "$out"
