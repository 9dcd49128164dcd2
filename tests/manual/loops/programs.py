#!/usr/bin/env python3
"""Programs of equal steps that name nothing: `programs.py NAME`. Writes the number of steps and the median step of its own clock, ns, to $LOOPS_CLOCK."""

import json
import os
import statistics
import sys
import time

import torch
from torch import nn

STEPS = int(os.environ.get("STEPS", "35"))
GPU = "cuda"


def tensor(*shape, kind=torch.bfloat16):
    return torch.randn(*shape, device=GPU, dtype=kind)


def mlp(waits):
    model = nn.Sequential(*(layer for _ in range(6) for layer in (nn.Linear(2048, 2048), nn.GELU()))).to(GPU, torch.bfloat16)
    batch = tensor(256, 2048)

    def step():
        out = model(batch)
        return out.sum().item() if waits else out
    return torch.no_grad()(step)


def train(optimizer, loss_to_host):
    model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).to(GPU)
    update = optimizer(model.parameters(), lr=1e-3)
    batch = tensor(512, 1024, kind=torch.float32)

    def step():
        update.zero_grad()
        loss = nn.functional.mse_loss(model(batch), batch)
        loss.backward()
        update.step()
        if loss_to_host:
            loss.item()
    return step


def attention(fused):
    q, k, v = (tensor(4, 16, 1024, 64) for _ in range(3))

    def step():
        for _ in range(4):
            if fused:
                nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            else:
                (torch.softmax(q @ k.transpose(-1, -2) / 8, dim=-1) @ v)
        torch.cuda.synchronize()
    return step


def experts():
    weights, batch = tensor(16, 1024, 1024), tensor(512, 1024)

    def step():
        chosen = torch.randint(0, 16, (512,), device=GPU)
        for expert in range(16):
            rows = (chosen == expert).nonzero()[:, 0]
            batch[rows] @ weights[expert]
    return step


def copies(pinned):
    host = torch.randn(64, 1 << 18)
    host = host.pin_memory() if pinned else host
    weight = tensor(1 << 9, 1 << 9, kind=torch.float32)

    def step():
        data = host.to(GPU, non_blocking=pinned)
        (data.view(-1, 1 << 9) @ weight).cpu()
    return step


def python_work():
    weight = tensor(1024, 1024)

    def step():
        sum(number * number for number in range(40_000))
        (weight @ weight).sum().item()
    return step


def loader():
    data = torch.utils.data.TensorDataset(torch.randn(STEPS * 64, 3, 64, 64))
    batches = torch.utils.data.DataLoader(data, batch_size=64, pin_memory=True)
    model = nn.Sequential(nn.Conv2d(3, 64, 3), nn.ReLU(), nn.Conv2d(64, 64, 3)).to(GPU)
    state = {"batches": iter(batches)}

    def step():
        batch = next(state["batches"], None)
        if batch is None:
            state["batches"] = iter(batches)
            batch = next(state["batches"])
        model(batch[0].to(GPU, non_blocking=True)).mean().item()
    return torch.no_grad()(step)


def graph():
    weight, batch = tensor(2048, 2048), tensor(64, 2048)
    replayed = torch.cuda.CUDAGraph()
    for _ in range(3):
        torch.relu(batch @ weight)
    with torch.cuda.graph(replayed):
        for _ in range(12):
            torch.relu(batch @ weight)

    def step():
        replayed.replay()
        torch.cuda.synchronize()
    return step


def decode():
    layer = nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True)
    model = nn.TransformerEncoder(layer, 8, enable_nested_tensor=False).to(GPU, torch.bfloat16).eval()
    head, token = nn.Linear(1024, 32000).to(GPU, torch.bfloat16), tensor(1, 1, 1024)
    return torch.no_grad()(lambda: head(model(token)).argmax().item())


PROGRAMS = {
    "mlp": lambda: mlp(False), "mlp_item": lambda: mlp(True),
    "train_sgd": lambda: train(torch.optim.SGD, False), "train_adam": lambda: train(torch.optim.AdamW, False),
    "train_item": lambda: train(torch.optim.AdamW, True),
    "attention": lambda: attention(False), "attention_fused": lambda: attention(True),
    "experts": experts, "copies": lambda: copies(False), "copies_pinned": lambda: copies(True),
    "python": python_work, "loader": loader, "graph": graph, "decode": decode,
    "elementwise": lambda: (lambda x: lambda: (x.sin().mul(2).add(1).relu().sum().item()))(tensor(1 << 24)),
}


def main(name):
    torch.manual_seed(0)
    step = PROGRAMS[name]()
    for _ in range(5):
        step()
    torch.cuda.synchronize()
    start = time.perf_counter_ns()
    marks = [start]
    for _ in range(STEPS):
        step()
        marks.append(time.perf_counter_ns())
    torch.cuda.synchronize()
    mean = (time.perf_counter_ns() - start) / STEPS
    median = statistics.median(b - a for a, b in zip(marks, marks[1:]))
    with open(os.environ["LOOPS_CLOCK"], "a", encoding="utf-8") as file:
        file.write(json.dumps({"steps": STEPS, "mean_ns": mean, "median_ns": median}) + "\n")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        print(*PROGRAMS)
    else:
        main(sys.argv[1])
