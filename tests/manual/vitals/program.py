#!/usr/bin/env python3
"""Decodes with a small transformers model until the file STOP exists."""

import json
import os
import sys

import torch

HERE = os.path.dirname(os.path.abspath(__file__))


def decode(stop):
    from transformers import AutoConfig, AutoModelForCausalLM

    with open(os.path.join(HERE, "../../../crates/roofgap-analyze/presets/qwen3_0_6b.json"), encoding="utf-8") as source:
        facts = json.load(source)
    config = AutoConfig.for_model(facts.pop("model_type"), **facts)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).to("cuda").eval()
    model.generation_config.eos_token_id = model.config.eos_token_id = None
    ids = torch.randint(1000, config.vocab_size, (4, 256), device="cuda")
    while not os.path.exists(stop):
        model.generate(ids, min_new_tokens=64, max_new_tokens=64, do_sample=False, pad_token_id=0, attention_mask=torch.ones_like(ids))


if __name__ == "__main__":
    decode(sys.argv[1])
