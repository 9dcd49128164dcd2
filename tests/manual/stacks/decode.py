#!/usr/bin/env python3
"""An eager decode of a Qwen3 0.6B shape with random weights; with TRACE, under PyTorch's profiler with stacks, once.

Otherwise it decodes while the file GO exists, and writes the time of every step to LOG, until the file STOP exists.

usage: decode.py --trace TRACE | decode.py LOG GO STOP
"""

import functools
import json
import os
import sys
import time

import torch
from transformers import AutoConfig, AutoModelForCausalLM

TOKENS = 64


def model():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../crates/roofgap-analyze/presets/qwen3_0_6b.json")
    with open(path, encoding="utf-8") as source:
        facts = json.load(source)
    config = AutoConfig.for_model(facts.pop("model_type"), **facts)
    with torch.device("cuda"):
        made = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
    made.generation_config.eos_token_id = made.config.eos_token_id = None
    return made


def main(words):
    made = model()
    ids = torch.randint(1000, 2000, (1, 128), device="cuda")

    def generate(tokens):
        made.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, do_sample=False, pad_token_id=0)

    # Attention makes a plan for each length of the cache.
    generate(TOKENS)
    if words[0] == "--trace":
        kinds = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=kinds, with_stack=True) as profiler:
            generate(12)
        profiler.export_chrome_trace(words[1])
        return
    log, go, stop = words
    prepare = made.prepare_inputs_for_generation
    with open(log, "w", encoding="ascii") as file:

        # transformers looks at its signature.
        @functools.wraps(prepare)
        def timed(*args, **named):
            # Once in each step.
            file.write(f"{time.time_ns()}\n")
            file.flush()
            return prepare(*args, **named)

        made.prepare_inputs_for_generation = timed
        file.write("ready\n")
        file.flush()
        while not os.path.exists(stop):
            if os.path.exists(go):
                generate(TOKENS)
                file.flush()
            else:
                time.sleep(0.1)


if __name__ == "__main__":
    main(sys.argv[1:])
