#!/usr/bin/env python3
"""Runs steps in which the GPU waits for one known cause, until the file STOP exists. Writes the time of each cause to LOG.

usage: planted.py CAUSE LOG STOP
"""

import gc
import json
import os
import re
import subprocess
import sys
import threading
import time

import torch

PLANTED_S = 0.012
NEIGHBOURS = 3


def sleep():
    return lambda: time.sleep(PLANTED_S)  # planted: sleep


def item():
    tokens = torch.arange(600, device="cuda").unbind()

    def read_back():
        return [token.item() for token in tokens]  # planted: item

    return read_back


def lock():
    held, go, ready = threading.Lock(), threading.Event(), threading.Event()

    def holder():
        while True:
            go.wait()
            go.clear()
            with held:
                ready.set()
                time.sleep(PLANTED_S)

    threading.Thread(target=holder, daemon=True).start()

    def wait():
        held.acquire()  # planted: lock
        held.release()

    def prepare():
        go.set()
        ready.wait()
        ready.clear()

    wait.prepare = prepare
    return wait


def collect():
    gc.disable()
    gc.collect()
    gc.freeze()
    kept = [[number] for number in range(200_000)]

    def clean():
        gc.collect()  # planted: collect
        return len(kept)

    return clean


def tokenizer():
    words, text = re.compile(r"[a-z]+|[0-9]+|\s+"), "some text of 16 letters and 42 "
    began = time.perf_counter()
    words.findall(text * 1000)
    text *= max(1, int(1000 * PLANTED_S / (time.perf_counter() - began)))

    def tokenize():
        # The tokens are freed in this line, too.
        words.findall(text)  # planted: tokenizer

    return tokenize


def neighbour():
    core = max(os.sched_getaffinity(0))
    spin = f"import os\nos.sched_setaffinity(0, [{core}])\nwhile os.getppid() == {os.getpid()}:\n    sum(range(100000))"
    for _ in range(NEIGHBOURS):
        subprocess.Popen([sys.executable, "-c", spin])
    # This thread alone: those of the driver stay where they are.
    os.sched_setaffinity(0, [core])

    def compute():
        return sum(range(300_000))  # planted: neighbour

    return compute


def waited_ns():
    """Time for which this thread has waited for a core, ns."""
    with open("/proc/thread-self/schedstat", encoding="ascii") as file:
        return int(file.read().split()[1])


def main(cause, log, stop):
    x = torch.randn(1024, 1024, device="cuda")
    y = torch.empty_like(x)
    torch.mm(x, x, out=y).sum().item()
    act = {"sleep": sleep, "item": item, "lock": lock, "collect": collect, "tokenizer": tokenizer, "neighbour": neighbour}[cause]()
    with open(log, "w", encoding="ascii") as file:
        while not os.path.exists(stop):
            getattr(act, "prepare", int)()
            waits = waited_ns()
            torch.cuda.nvtx.range_push("decode_step")
            torch.mm(x, x, out=y)
            began, at = time.perf_counter_ns(), time.time_ns()
            act()
            ns = time.perf_counter_ns() - began
            torch.mm(x, x, out=y)
            torch.cuda.nvtx.range_pop()
            file.write(json.dumps({"at": at, "ns": ns, "waited_ns": waited_ns() - waits}) + "\n")
            file.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
