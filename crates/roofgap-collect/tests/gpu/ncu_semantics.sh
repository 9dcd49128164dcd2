#!/usr/bin/env bash
# Shows the behaviour of ncu with the options of this crate. Run on a GPU machine with torch, nsys and ncu:
#
#   bash crates/roofgap-collect/tests/gpu/ncu_semantics.sh [OUT]
#
# Prints one fact per line and keeps the logs in OUT. It checks nothing.
set -u
out=${1:-${OUT:-$(mktemp -d)}/ncu_semantics}
mkdir -p "$out"
cd "$out" || exit 1
NSYS=${NSYS:-nsys}
NCU=${NCU:-ncu}

cat >program.py <<'PY'
import os, sys, time, torch
rounds, pause = int(sys.argv[1]), float(sys.argv[2])
a = torch.randn(1024, 1024, device="cuda", dtype=torch.bfloat16)
b = torch.randn(256, 1024, device="cuda", dtype=torch.bfloat16)
torch.cuda.synchronize()
open("pid", "w").write(str(os.getpid()))
for _ in range(rounds):
    torch.cuda.nvtx.range_push("a/b [1]")
    c = torch.softmax((a @ a).float(), dim=-1)
    torch.cuda.synchronize()
    torch.cuda.nvtx.range_pop()
    torch.cuda.nvtx.range_push("LLM@decode_all")
    e = torch.relu(a)
    torch.cuda.synchronize()
    torch.cuda.nvtx.range_pop()
    torch.cuda.nvtx.range_push("plain")
    d = torch.nn.functional.silu(b @ a) * 2
    torch.cuda.synchronize()
    torch.cuda.nvtx.range_pop()
    time.sleep(pause)
print("program done")
PY

rows() { # REPORT: launches in it
    [ -s "$1" ] || { echo none; return; }
    "$NCU" --import "$1" --page raw --csv --print-units base 2>/dev/null | tail -n +3 | grep -c . || true
}
answer() { printf '%-58s %s\n' "$1" "$2" | tee -a answers.txt; }
: >answers.txt

"$NCU" --version | tail -n 1 | tee -a answers.txt
"$NSYS" --version | tee -a answers.txt

"$NSYS" profile --trace=cuda,nvtx --sample=none --cpuctxsw=none --force-overwrite=true -o timeline python3 program.py 3 0 >nsys.log 2>&1
"$NSYS" export --type=sqlite --force-overwrite=true -o timeline.sqlite timeline.nsys-rep >>nsys.log 2>&1
python3 - <<'PY'
import re, sqlite3
db = sqlite3.connect("timeline.sqlite")
names = {}
for base in ("mangled", "demangled", "short"):
    query = f"select distinct s.value from CUPTI_ACTIVITY_KIND_KERNEL k join StringIds s on s.id = k.{base}Name"
    names[base] = [row[0] for row in db.execute(query)]
    escape = lambda text: re.sub(r"([\\^$.|?*+(){}\[\]])", r"\\\1", text)
    open(f"{base}.regex", "w").write("regex:^(" + "|".join(map(escape, names[base])) + ")$")
strata = db.execute("select count(*) from (select distinct mangledName, gridX, gridY, gridZ, blockX, blockY, blockZ from CUPTI_ACTIVITY_KIND_KERNEL)").fetchone()[0]
open("strata", "w").write(str(strata))
PY
answer "kernel x grid x block strata in the timeline" "$(cat strata)"

common=(--target-processes all --force-overwrite --clock-control none --metrics gpu__time_duration.sum --null-stdin)
each=(--filter-mode per-launch-config --launch-count 1)
for base in mangled:mangled demangled:demangled short:function; do
    "$NCU" "${common[@]}" "${each[@]}" -o "by_${base%%:*}" --kernel-name-base "${base##*:}" --kernel-name "$(cat "${base%%:*}.regex")" \
        python3 program.py 3 0 >"by_${base%%:*}.log" 2>&1
    answer "launches measured, names by ${base##*:} from nsys" "$(rows "by_${base%%:*}.ncu-rep"), status $?"
done

"$NCU" "${common[@]}" "${each[@]}" --nvtx --nvtx-include 'a\/b \[1\]/' -o escaped python3 program.py 3 0 >escaped.log 2>&1
answer "launches inside the range 'a/b [1]', escaped" "$(rows escaped.ncu-rep)"
"$NCU" "${common[@]}" "${each[@]}" --nvtx --nvtx-include 'plain/' -o plain python3 program.py 3 0 >plain.log 2>&1
answer "launches inside the range 'plain'" "$(rows plain.ncu-rep)"

# A label pushed whole into the default domain is a name; without the backslash it is a range of the domain LLM.
for label in 'LLM\@decode_all/' 'LLM@decode_all/'; do
    name=label_$([ "${label#*\\}" = "$label" ] && echo domain || echo literal)
    "$NCU" "${common[@]}" "${each[@]}" --nvtx --nvtx-include "$label" -o "$name" python3 program.py 3 0 >"$name.log" 2>&1
    answer "launches with --nvtx-include $label" "$(rows "$name.ncu-rep")"
done

# One report for each range out of a report of all.
"$NCU" "${common[@]}" "${each[@]}" --nvtx -o all python3 program.py 3 0 >all.log 2>&1
"$NCU" --import all.ncu-rep --nvtx-include 'LLM\@decode_all/' --force-overwrite --export stage >stage.log 2>&1
answer "launches of all, of a range exported from it" "$(rows all.ncu-rep), $(rows stage.ncu-rep)"

SECONDS=0
timeout 120 "$NCU" "${common[@]}" "${each[@]}" --kill yes -o killed python3 program.py 30 1 >killed.log 2>&1
answer "--kill yes with per-launch-config" "status $?, ${SECONDS} s, launches $(rows killed.ncu-rep), program $(grep -c 'program done' killed.log) times done"

for how in TERM-program INT-group TERM-group; do
    rm -f pid
    SECONDS=0
    setsid "$NCU" "${common[@]}" "${each[@]}" -o "end_$how" python3 program.py 60 1 >"end_$how.log" 2>&1 &
    lead=$!
    for _ in $(seq 60); do [ -s pid ] && break; sleep 1; done
    sleep 6
    case $how in
        TERM-program) kill -TERM "$(cat pid)" ;;
        INT-group) kill -INT -- "-$lead" ;;
        TERM-group) kill -TERM -- "-$lead" ;;
    esac
    for _ in $(seq 40); do kill -0 "$lead" 2>/dev/null || break; sleep 1; done
    wait "$lead" 2>/dev/null
    answer "ended by $how" "status $?, ${SECONDS} s, launches $(rows "end_$how.ncu-rep"), still there: $(pgrep -fc 'program.py 60 1')"
    kill -KILL -- "-$lead" 2>/dev/null
    kill -KILL "$(cat pid)" 2>/dev/null
done

grep -h '==PROF== Profiling' by_mangled.log | head -n 2 | tee -a answers.txt
echo "answers: $out/answers.txt"
