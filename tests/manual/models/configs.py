#!/usr/bin/env python3
"""Writes folders with a `config.json` of shrunken models, by the configuration classes of transformers (`configs.py FOLDER`)."""

import os
import sys

import transformers

SMALL = {"hidden_size": 1024, "num_hidden_layers": 4, "vocab_size": 32000, "max_position_embeddings": 2048}
HEADS = {"num_attention_heads": 8, "num_key_value_heads": 2, "intermediate_size": 2816}
EXPERTS = {"moe_intermediate_size": 512, "num_experts_per_tok": 2}

MODELS = {
    "olmo2": {**SMALL, **HEADS},
    "qwen3_next": {
        **SMALL, **HEADS, **EXPERTS, "head_dim": 128, "num_experts": 8, "shared_expert_intermediate_size": 512,
        "linear_num_key_heads": 4, "linear_num_value_heads": 8, "linear_key_head_dim": 64, "linear_value_head_dim": 64,
    },
    "mamba2": {
        "hidden_size": 1024, "num_hidden_layers": 4, "vocab_size": 32000, "state_size": 64, "num_heads": 32, "head_dim": 64, "n_groups": 1,
    },
    "gemma3_text": {**SMALL, **HEADS, "head_dim": 128, "sliding_window": 512, "num_hidden_layers": 6},
    "glm4_moe": {**SMALL, **HEADS, **EXPERTS, "head_dim": 128, "n_routed_experts": 8, "n_shared_experts": 1, "first_k_dense_replace": 1},
    "deepseek_v2": {
        **SMALL, **HEADS, **EXPERTS, "num_key_value_heads": 8, "n_routed_experts": 8, "n_shared_experts": 2, "first_k_dense_replace": 1,
        "q_lora_rank": 256, "kv_lora_rank": 128, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 64,
        "topk_method": "greedy", "n_group": 1, "topk_group": 1,
    },
}


def main(folder):
    for kind, sizes in MODELS.items():
        config = transformers.AutoConfig.for_model(kind, dtype="bfloat16", **sizes)
        path = os.path.join(folder, kind)
        os.makedirs(path, exist_ok=True)
        config.save_pretrained(path)
        print(path)


if __name__ == "__main__":
    main(sys.argv[1])
