#!/usr/bin/env python3
"""A plain transformers program with random weights, in one of three modes; prints its own figures as one line of JSON."""

import json
import os
import sys
import time

number = lambda name, default: int(os.environ.get(name, default))  # noqa: E731


def main(mode):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

    batch, prompt, tokens, rounds = number("BATCH", 8), number("PROMPT", 128), number("TOKENS", 128), number("ROUNDS", 3)
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../crates/roofgap-analyze/presets/qwen3_0_6b.json")
    with open(path, encoding="utf-8") as source:
        facts = json.load(source)
    config = AutoConfig.for_model(facts.pop("model_type"), **facts)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).to("cuda").eval()
    model.generation_config.eos_token_id = model.config.eos_token_id = None
    ids = torch.randint(1000, config.vocab_size, (batch, prompt), device="cuda")
    figures = {"mode": mode, "batch": batch, "steps": tokens - 1}
    if mode == "batching":
        settings = GenerationConfig(max_new_tokens=tokens, do_sample=False, eos_token_id=-1, pad_token_id=0)
        found = model.generate_batch(ids.tolist(), generation_config=settings, record_timestamps=True, progress_bar=False)
        answers = list(found.values())
        times = [answer.timestamps for answer in answers]
        generated = sum(len(answer.generated_tokens) for answer in answers)
        first, last = min(each[0] for each in times), max(each[-1] for each in times)
        figures.update(prompt_tokens=batch * prompt, generated_tokens=generated, requests=batch)
        figures["decode_tokens_per_s"] = (generated - batch) / (last - first)
    else:
        options = {"cache_implementation": "static"} if mode == "static" else {}
        settings = {"do_sample": False, "pad_token_id": 0, "attention_mask": torch.ones_like(ids), **options}

        def seconds(new):
            torch.cuda.synchronize()
            began = time.perf_counter()
            answer = model.generate(ids, min_new_tokens=new, max_new_tokens=new, **settings)
            torch.cuda.synchronize()
            assert answer.shape[1] == prompt + new
            return time.perf_counter() - began

        # One token is prefill alone. Compilation is in the first rounds.
        pairs = [(seconds(tokens), seconds(1)) for _ in range(rounds)]
        long, short = pairs[-1]
        runs = 2 * rounds
        figures.update(prompt_tokens=batch * prompt * runs, generated_tokens=batch * (tokens + 1) * rounds, requests=batch * runs)
        figures["decode_tokens_per_s"] = batch * (tokens - 1) / (long - short)
    print("FIGURES " + json.dumps(figures), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
