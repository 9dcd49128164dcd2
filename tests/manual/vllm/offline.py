#!/usr/bin/env python3
"""A plain vLLM program: several rounds of requests with random prompts; prints its own figures as one line of JSON."""

import json
import os
import random
import sys
import tempfile
import time

number = lambda name, default: int(os.environ.get(name, default))  # noqa: E731


def compilation():
    """Returns the options of compilation and graphs that the environment sets."""
    options = {}
    if os.environ.get("COMPILE") == "0":
        # Every module runs, and graphs are of the whole model.
        options.update(mode=0, cudagraph_mode="FULL")
    if os.environ.get("SIZES"):
        options["cudagraph_capture_sizes"] = [int(size) for size in os.environ["SIZES"].split(",")]
    return {"compilation_config": options} if options else {}


def main():
    from vllm import LLM, SamplingParams

    requests, prompt, tokens, rounds = number("REQUESTS", 16), number("PROMPT", 128), number("TOKENS", 64), number("ROUNDS", 8)
    # In the same place each time, so that vLLM finds what it compiled before.
    folder = os.path.join(tempfile.gettempdir(), "roofgap-vllm-model")
    os.makedirs(folder, exist_ok=True)
    config = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../crates/roofgap-analyze/presets/qwen3_1_7b.json")
    with open(config, encoding="utf-8") as source, open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as target:
        json.dump({**json.load(source), "architectures": ["Qwen3ForCausalLM"], "max_position_embeddings": 40960}, target)
    llm = LLM(
        model=folder,
        load_format="dummy",
        skip_tokenizer_init=True,
        enforce_eager=os.environ.get("EAGER") == "1" or "--enforce-eager" in sys.argv,
        enable_prefix_caching=False,
        max_model_len=2048,
        gpu_memory_utilization=0.3,
        seed=0,
        **compilation(),
    )
    choice = random.Random(0)
    sampling = SamplingParams(max_tokens=tokens, ignore_eos=True, detokenize=False, temperature=0.0)
    seconds, generated = [], 0
    start = time.perf_counter()
    for _ in range(rounds):
        batch = [{"prompt_token_ids": [choice.randrange(1000, 100000) for _ in range(prompt)]} for _ in range(requests)]
        began = time.perf_counter()
        outputs = llm.generate(batch, sampling, use_tqdm=False)
        seconds.append(time.perf_counter() - began)
        generated += sum(len(output.outputs[0].token_ids) for output in outputs)
    total = time.perf_counter() - start
    figures = {
        "requests": requests * rounds,
        "prompt_tokens": requests * prompt * rounds,
        "generated_tokens": generated,
        "seconds": seconds,
        "total_seconds": total,
        "tokens_per_s": [requests * tokens / second for second in seconds],
    }
    print("FIGURES " + json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
