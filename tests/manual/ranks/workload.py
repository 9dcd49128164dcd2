#!/usr/bin/env python3
"""Two ranks that share one GPU: matrix products, an all-reduce of gloo each step, and a few transfers. Rank 1 computes more."""

import json
import os
import time

import torch
import torch.distributed as dist

STEPS = int(os.environ.get("STEPS", "20"))
ELEMENTS = int(os.environ.get("ELEMENTS", str(1 << 18)))
TRANSFERS = 5


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", 0)
    left = torch.randn(1024, 1024, device=device)
    message = torch.ones(ELEMENTS, device=device)
    gathered = [torch.empty(1000, device=device) for _ in range(size)]
    torch.cuda.synchronize()
    dist.barrier()
    began = time.perf_counter()
    torch.cuda.nvtx.range_push("decode")
    for _ in range(STEPS):
        torch.cuda.nvtx.range_push("decode_step")
        for _ in range(40 if rank == 1 else 10):
            left = left @ left
            left = left / left.norm()
        torch.cuda.synchronize()
        dist.all_reduce(message)
        message /= size
        torch.cuda.nvtx.range_pop()
    torch.cuda.nvtx.range_pop()
    dist.all_gather(gathered, torch.ones(1000, device=device))
    # Transfers of gloo take tensors of the CPU.
    for number in range(TRANSFERS):
        if rank == 0:
            dist.send(torch.full((500,), float(number)), dst=1)
        elif rank == 1:
            dist.recv(torch.empty(500), src=0)
    torch.cuda.synchronize()
    good = bool((message == 1).all())
    if rank == 0:
        figures = {
            "steps": STEPS,
            "bytes": ELEMENTS * 4,
            "transfers": TRANSFERS,
            "seconds": time.perf_counter() - began,
            "good": good,
        }
        print("FIGURES " + json.dumps(figures), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
