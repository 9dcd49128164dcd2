#!/usr/bin/env python3
"""A small transformer in plain torch, run eagerly and as a CUDA graph; prints nothing but its figures.

MODE=eager runs it kernel by kernel, MODE=graph captures it once and replays it.
"""

import os
import time

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, size, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(size, 3 * size)
        self.out = nn.Linear(size, size)

    def forward(self, x):
        batch, length, size = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, size // self.heads).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, size))


class Mlp(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.up = nn.Linear(size, 4 * size)
        self.down = nn.Linear(4 * size, size)

    def forward(self, x):
        return self.down(nn.functional.gelu(self.up(x)))


class Block(nn.Module):
    def __init__(self, size, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(size), nn.LayerNorm(size)
        self.attn, self.mlp = Attention(size, heads), Mlp(size)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Model(nn.Module):
    def __init__(self, size=1024, heads=16, layers=8):
        super().__init__()
        self.layers = nn.ModuleList(Block(size, heads) for _ in range(layers))
        self.head = nn.Linear(size, 4096)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


@torch.inference_mode()
def main():
    torch.manual_seed(0)
    model = Model().cuda().half().eval()
    x = torch.randn(4, 256, 1024, device="cuda", dtype=torch.half)
    torch.cuda.nvtx.range_push("warmup")
    for _ in range(3):
        expected = model(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    if os.environ.get("MODE") == "graph":
        with torch.cuda.graph(graph):
            output = model(x)
    torch.cuda.nvtx.range_pop()
    began = time.perf_counter()
    torch.cuda.nvtx.range_push("decode")
    for _ in range(50):
        if os.environ.get("MODE") == "graph":
            graph.replay()
        else:
            output = model(x)
    torch.cuda.synchronize()
    torch.cuda.nvtx.range_pop()
    assert torch.allclose(output, expected, atol=1e-2), "the replay gives another result"
    print(f"FIGURES {os.environ.get('MODE')}: {time.perf_counter() - began:.4f} s", flush=True)


if __name__ == "__main__":
    main()
