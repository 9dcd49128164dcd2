#!/usr/bin/env bash
# A grid of 24 vLLM configurations and the search of `roofgap tune` over the same space, on one GPU, within about 6 minutes.
#
# usage: OUT=FOLDER ROOFGAP=path/to/roofgap bash tests/manual/tune/run.sh      (vLLM on PYTHONPATH)
#
# Knobs: eager or graphs (2) x max_num_seqs (3) x max_num_batched_tokens (4). The last two are limits of the scheduler, so they share a
# start: an engine starts with the largest of both, and a run lowers them. Eager and graphs need a start each: two engines stay loaded, one after
# the other in use. A run is one `LLM.generate` of 128 requests; its program is a small client that asks an engine over a socket.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
OUT=${OUT:-$PWD/tune-out} ROOFGAP=${ROOFGAP:-roofgap}
export OUT; mkdir -p "$OUT" && cd "$OUT"
export VLLM_USE_FLASHINFER_SAMPLER=0 HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 VLLM_ENABLE_V1_MULTIPROCESSING=0
mkdir -p model && cat > model/config.json <<'J'
{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28,
 "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 40960,
 "rms_norm_eps": 1e-6, "rope_theta": 1000000, "tie_word_embeddings": true, "hidden_act": "silu", "attention_bias": false,
 "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151645, "torch_dtype": "bfloat16", "use_cache": true,
 "use_sliding_window": false, "sliding_window": null, "rope_scaling": null, "initializer_range": 0.02}
J
began=$(date +%s)
for mode in eager graphs; do
    python3 "$here/tune_engine.py" "$mode" > "engine-$mode.log" 2>&1 &
    echo $! > "engine-$mode.pid"
    # One after the other: each measures the free memory when it starts, and takes a third of all.
    for _ in $(seq 150); do [ -S "$mode.sock" ] && break; kill -0 "$(cat "engine-$mode.pid")" || { tail -30 "engine-$mode.log"; exit 1; }; sleep 1; done
    echo "$mode ready after $(( $(date +%s) - began )) s"
done
stop() { for mode in eager graphs; do kill "$(cat "engine-$mode.pid")" 2>/dev/null || true; done; }
trap stop EXIT
cat > space.yaml <<'Y'
- {env: MODE, values: [graphs], output: rounding}
- {env: SEQS, values: [64, 256], output: rounding}
- {env: TOKENS, values: [512, 2048, 8192], output: rounding}
Y
python3 "$here/tune_client.py" grid grid.json
echo "grid done after $(( $(date +%s) - began )) s"
"$ROOFGAP" profile runner=unwatched workload=command workload.annotate=false "artifacts.stage2_dir='$OUT/runs'" \
    "workload.program=[python3, '$here/tune_client.py']" > profile.log 2>&1
run=$(ls -d runs/*/ | head -1)
"$ROOFGAP" tune "$run" --yes --space space.yaml --goal throughput --budget 3m --accept-changed-output > search.txt 2> search.log || true
echo "search done after $(( $(date +%s) - began )) s"
cp "$run/tune.json" . && "$ROOFGAP" tune verify "$run/tune.json" | tee verify.txt
python3 "$here/tune_client.py" table grid.json tune.json | tee table.txt
