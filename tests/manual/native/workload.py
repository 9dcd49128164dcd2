"""A small Llama-like decoder with random bf16 weights, for measuring profiler overhead.

Eager decode is launch-bound: about forty launches a layer and token. The same step is also captured as a CUDA graph.
Stages are annotated as roofgap expects them: LLM@prefill, LLM@decode_all, LLM@decode_step, LLM@warmup.
"""

import argparse
import json
import os
import sys
import time
from contextlib import contextmanager

import torch
import torch.nn.functional as F

try:
    import nvtx

    DOMAIN = nvtx.get_domain("LLM") if hasattr(nvtx, "get_domain") else None
    if not hasattr(DOMAIN, "push_range"):  # before 0.2.12
        DOMAIN = None
except ImportError:
    nvtx = None
    DOMAIN = None

ATTRIBUTES = {}


@contextmanager
def stage(name):
    """A push/pop range in domain LLM, or in the default domain if the package nvtx is missing."""
    if DOMAIN is not None:
        if name not in ATTRIBUTES:
            ATTRIBUTES[name] = DOMAIN.get_event_attributes(name)
        DOMAIN.push_range(ATTRIBUTES[name])
        try:
            yield
        finally:
            DOMAIN.pop_range()
    elif nvtx is not None:
        with nvtx.annotate(name, domain="LLM"):
            yield
    else:
        torch.cuda.nvtx.range_push(name)
        try:
            yield
        finally:
            torch.cuda.nvtx.range_pop()


class Decoder:
    """The weights, the cache and one step."""

    def __init__(self, args, device):
        torch.manual_seed(0)
        self.args, self.device = args, device
        hidden, heads = args.hidden, args.heads
        self.head = hidden // heads
        self.length = args.prompt + args.tokens + 8

        def weight(*shape):
            return torch.randn(*shape, device=device, dtype=torch.bfloat16) * 0.02

        self.embedding = weight(args.vocab, hidden)
        self.layers = [
            {
                "n1": torch.ones(hidden, device=device, dtype=torch.bfloat16),
                "n2": torch.ones(hidden, device=device, dtype=torch.bfloat16),
                "q": weight(hidden, hidden),
                "k": weight(hidden, hidden),
                "v": weight(hidden, hidden),
                "o": weight(hidden, hidden),
                "gate": weight(4 * hidden, hidden),
                "up": weight(4 * hidden, hidden),
                "down": weight(hidden, 4 * hidden),
                "kc": torch.zeros(1, heads, self.length, self.head, device=device, dtype=torch.bfloat16),
                "vc": torch.zeros(1, heads, self.length, self.head, device=device, dtype=torch.bfloat16),
            }
            for _ in range(args.layers)
        ]
        inverse = 1.0 / (10000 ** (torch.arange(0, self.head, 2, device=device).float() / self.head))
        angles = torch.outer(torch.arange(self.length, device=device).float(), inverse)
        self.cos = torch.cat([angles.cos(), angles.cos()], -1)
        self.sin = torch.cat([angles.sin(), angles.sin()], -1)

    @staticmethod
    def norm(x, weight):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
        return weight * y.to(x.dtype)

    def rotate(self, x, positions):
        cos, sin = self.cos[positions], self.sin[positions]
        first, second = x.float().chunk(2, -1)
        return (x.float() * cos + torch.cat([-second, first], -1) * sin).to(x.dtype)

    def forward(self, tokens, positions, mask):
        heads = self.args.heads
        x = self.embedding[tokens]
        for layer in self.layers:
            y = self.norm(x, layer["n1"])
            q, k, v = (F.linear(y, layer[name]).view(1, -1, heads, self.head).transpose(1, 2) for name in "qkv")
            q, k = self.rotate(q, positions), self.rotate(k, positions)
            layer["kc"].index_copy_(2, positions, k)
            layer["vc"].index_copy_(2, positions, v)
            y = F.scaled_dot_product_attention(q, layer["kc"], layer["vc"], attn_mask=mask)
            x = x + F.linear(y.transpose(1, 2).reshape(1, -1, self.args.hidden), layer["o"])
            y = self.norm(x, layer["n2"])
            x = x + F.linear(F.silu(F.linear(y, layer["gate"])) * F.linear(y, layer["up"]), layer["down"])
        return F.linear(x[:, -1:], self.embedding).argmax(-1)

    def mask(self, positions):
        return (torch.arange(self.length, device=self.device) <= positions[:, None])[None, None]

    def prefill(self, prompt):
        positions = torch.arange(prompt.shape[1], device=self.device)
        return self.forward(prompt, positions, self.mask(positions))

    def step(self, token, position):
        return self.forward(token, position, self.mask(position))


def generate(model, prompt, tokens):
    """Runs one prefill and one decode. Returns the seconds of each."""
    torch.cuda.synchronize()
    begun = time.perf_counter()
    with stage("prefill"):
        token = model.prefill(prompt)
        torch.cuda.synchronize()
    middle = time.perf_counter()
    with stage("decode_all"):
        for at in range(tokens):
            with stage("decode_step"):
                token = model.step(token, torch.tensor([prompt.shape[1] + at], device=model.device))
        torch.cuda.synchronize()
    return middle - begun, time.perf_counter() - middle


def generate_graph(model, prompt, tokens, repeats):
    """Replays the same step as a CUDA graph. Returns the ms of each repeat."""
    position = torch.tensor([prompt.shape[1]], device=model.device)
    token = torch.zeros(1, 1, device=model.device, dtype=torch.long)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(2):
            token.copy_(model.step(token, position))
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        token.copy_(model.step(token, position))
        position.add_(1).clamp_(max=model.length - 1)
    times = []
    for repeat in range(repeats + 1):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        with stage("warmup" if repeat == 0 else "graph_decode"):
            for _ in range(tokens):
                graph.replay()
            torch.cuda.synchronize()
        times.append((time.perf_counter() - begun) * 1e3)
    return times[1:]


def memory_mb():
    facts = {}
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith(("VmRSS", "VmHWM")):
                facts[line.split(":")[0]] = int(line.split()[1]) / 1024
    return facts


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--vocab", type=int, default=32000)
    parser.add_argument("--prompt", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=6)
    parser.add_argument("--graph", action="store_true", help="also decode with a CUDA graph")
    parser.add_argument("--torch-profiler", action="store_true", help="under torch.profiler")
    parser.add_argument("--many", type=int, default=0, help="launch this many small kernels instead")
    parser.add_argument("--forever", action="store_true", help="decode until killed, a line for every repeat")
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    device = torch.device("cuda")
    torch.cuda.init()
    result = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "nvtx": nvtx is not None}

    if args.many:
        x = torch.zeros(1024, device=device)
        for _ in range(1000):
            x.add_(1)
        torch.cuda.synchronize()
        result["before"] = memory_mb()
        begun = time.perf_counter()
        with stage("many"):
            for _ in range(args.many):
                x.add_(1)
            torch.cuda.synchronize()
        result["seconds"] = time.perf_counter() - begun
        result["after"] = memory_mb()
    else:
        model = Decoder(args, device)
        prompt = torch.randint(0, args.vocab, (1, args.prompt), device=device)
        with torch.inference_mode():
            with stage("warmup"):
                generate(model, prompt, args.tokens)
                generate(model, prompt, args.tokens)
            if args.forever:
                while True:
                    generate(model, prompt, args.tokens)
                    print("repeat", flush=True)

            def measure():
                result["eager"] = [generate(model, prompt, args.tokens) for _ in range(args.repeats)]

            if args.torch_profiler:
                from torch.profiler import ProfilerActivity, profile

                with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]):
                    measure()
            else:
                measure()
            if args.graph:
                result["graph_ms"] = generate_graph(model, prompt, args.tokens, args.repeats)
        result["prefill_ms"] = [pair[0] * 1e3 for pair in result["eager"]]
        result["decode_ms"] = [pair[1] * 1e3 for pair in result.pop("eager")]
        result["memory"] = memory_mb()
    with open(args.out, "w") as out:
        json.dump(result, out)


if __name__ == "__main__":
    sys.exit(main())
