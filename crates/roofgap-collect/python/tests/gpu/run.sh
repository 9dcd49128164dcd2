#!/usr/bin/env bash
# Runs the driver and the annotation on a GPU with every model and decode mode, and compares the tokens. Needs torch and transformers.
# Usage: run.sh [PYTHON]. Writes accounts to $OUT (default: a temporary folder) and prints a table.
set -u
python=${1:-python3}
here=$(cd "$(dirname "$0")" && pwd)
driver=$here/../../hf_driver.py
presets=$here/../../../../roofgap-analyze/presets
out=${OUT:-$(mktemp -d)}
failed=0

run() { # NAME ARGUMENT...
    local name=$1
    shift
    echo "== $name" >&2
    if ! timeout 300 "$python" "$driver" --account "$out/$name.json" "$@" >"$out/$name.out" 2>"$out/$name.err"; then
        echo "FAILED $name"
        tail -n 5 "$out/$name.err"
        failed=1
    fi
}

"$python" "$driver" --self-check
small=(--prompt-tokens 256 --new-tokens 32 --repeats 3)
run dsocr2 --config-json "$presets/deepseek_ocr2.json" --prompt-tokens 512 --new-tokens 32
run dsocr2_operators --config-json "$presets/deepseek_ocr2.json" --prompt-tokens 512 --new-tokens 8 \
    --profile-operators "$out/dsocr2_ops.json" --trace-out "$out/dsocr2.trace.json.gz"
run dsocr2_batched_mm --config-json "$presets/deepseek_ocr2.json" --prompt-tokens 512 --new-tokens 32 --experts batched_mm
run dsocr2_graphs --config-json "$presets/deepseek_ocr2.json" --prompt-tokens 512 --new-tokens 32 --experts batched_mm --cuda-graphs
run qwen3 --config-json "$presets/qwen3_0_6b.json" "${small[@]}"
run qwen3_graphs --config-json "$presets/qwen3_0_6b.json" "${small[@]}" --cuda-graphs
run qwen3_compile --config-json "$presets/qwen3_0_6b.json" "${small[@]}" --compile
run qwen3_batch --config-json "$presets/qwen3_0_6b.json" "${small[@]}" --batch 8

echo "== annotation" >&2
if "$python" "$here/plain_generate.py" >"$out/plain.out" 2>"$out/plain.err" &&
    ROOFGAP_ANNOTATE_DEBUG=1 ROOFGAP_WORKLOAD_JSON=$out/annotated.json PYTHONPATH=$here/../../annotate \
        "$python" "$here/plain_generate.py" >"$out/annotated.out" 2>"$out/annotated.err"; then
    cmp "$out/plain.out" "$out/annotated.out" || failed=1
else
    tail -n 5 "$out/plain.err" "$out/annotated.err"
    failed=1
fi

echo "== too large" >&2
"$python" "$driver" --config-json "$presets/llama3_8b.json" --batch 4096 --prompt-tokens 4096 --new-tokens 2 2>&1 | tail -n 1
echo "status ${PIPESTATUS[0]} (13 is out of memory)"

"$python" - "$out" <<'TABLE'
import glob, json, os, statistics, sys
print(f"{'run':20} {'parameters':>14} {'prompt':>6} {'vision':>6} {'prefill ms':>10} {'decode ms':>10} {'step ms':>8}  hash")
for path in sorted(glob.glob(os.path.join(sys.argv[1], "*.json"))):
    account = json.load(open(path))
    if account.get("schema") != "roofgap.workload/1":
        continue
    stages = [s for r in account["repeats"] if not r["warmup"] for s in r["stages"]]
    wall = {n: statistics.median(s["wall_ns"] for s in stages if s["name"] == n) / 1e6 for n in ("prefill", "decode")}
    step = statistics.median(t for s in stages for t in s["steps_ns"] or []) / 1e6
    t = account["tokens"]
    print(f"{os.path.basename(path)[:-5]:20} {account['model']['parameters'] or 0:14,} {t['prompt']:6} {t['vision'] or 0:6} "
          f"{wall['prefill']:10.1f} {wall['decode']:10.1f} {step:8.2f}  {(account['token_hash'] or '')[7:19]}")
    for note in account["notes"]:
        print(f"{'':20}   {note}")
TABLE
exit $failed
