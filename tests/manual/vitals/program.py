#!/usr/bin/env python3
"""Programs whose energy is known in another way.

decode STOP   decodes with a small transformers model until the file STOP exists
mix SECONDS   kernels of several families in changing proportions
alone FILE    each of these kernels in a loop of its own; writes the watts by the meter of the driver
"""

import ctypes
import json
import os
import random
import sys
import time

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


def works():
    """Returns work by name, with launches of about a millisecond."""
    torch.manual_seed(0)
    half = {"device": "cuda", "dtype": torch.bfloat16}
    a, b = torch.randn(8192, 8192, **half), torch.randn(8192, 4096, **half)
    q, k, v = (torch.randn(8, 32, 2048, 128, **half) for _ in range(3))
    x, y = torch.randn(1 << 29, **half), torch.randn(1 << 29, **half)
    m = torch.randn(16384, 16384, **half)
    return {
        "gemm": lambda: torch.mm(a, b),
        "attention": lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True),
        "elementwise": lambda: torch.add(x, y, out=x),
        "softmax": lambda: torch.softmax(m, dim=-1),
    }


def mix(seconds):
    work = works()
    chance = random.Random(1)
    for run in work.values():
        run()
    torch.cuda.synchronize()
    # A second with a context and no work is the idle power.
    time.sleep(1.5)
    end = time.time() + seconds
    while time.time() < end:
        names = chance.sample(list(work), 2)
        for _ in range(chance.randint(4, 12)):
            for name in names:
                for _ in range(chance.randint(1, 12)):
                    work[name]()
        torch.cuda.synchronize()
        if chance.random() < 0.1:
            time.sleep(0.1)


def alone(path):
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    device, millijoules = ctypes.c_void_p(), ctypes.c_ulonglong()
    assert nvml.nvmlInit_v2() == 0 and nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0

    def changed():
        """Waits for a change of the meter, and returns its time and value, J."""
        nvml.nvmlDeviceGetTotalEnergyConsumption(device, ctypes.byref(millijoules))
        before = millijoules.value
        while millijoules.value == before:
            nvml.nvmlDeviceGetTotalEnergyConsumption(device, ctypes.byref(millijoules))
        return time.time(), millijoules.value / 1e3

    found = {}
    for name, run in works().items():
        began = torch.cuda.Event(enable_timing=True)
        ended = torch.cuda.Event(enable_timing=True)

        def loop(seconds):
            end = time.time() + seconds
            count = 0
            while time.time() < end:
                for _ in range(16):
                    run()
                count += 16
                torch.cuda.current_stream().synchronize() if count % 128 == 0 else None
            return count

        loop(1.0)
        # The queue is kept full, so that the meter sees nothing else.
        for _ in range(64):
            run()
        start = changed()
        began.record()
        count = loop(3.0)
        ended.record()
        stop = changed()
        torch.cuda.synchronize()
        found[name] = {"watts": (stop[1] - start[1]) / (stop[0] - start[0]), "ms": began.elapsed_time(ended) / count, "launches": count}
        print(name, found[name], flush=True)
    with open(path, "w", encoding="utf-8") as out:
        json.dump(found, out)


if __name__ == "__main__":
    {"decode": decode, "mix": lambda text: mix(float(text)), "alone": alone}[sys.argv[1]](sys.argv[2])
