"""A decoder of named steps in which causes of slow steps are planted, each several times. Writes when to $PLANTED."""

import gc
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time

import torch

REPEATS = int(os.environ.get("REPEATS", "1"))
# Incidents are kept at most every 5 s.
APART_S = 5.6
LENGTH = 4096
weights = [torch.randn(LENGTH, LENGTH, device="cuda", dtype=torch.bfloat16) for _ in range(4)]
small, large = (torch.randn(rows, LENGTH, device="cuda", dtype=torch.bfloat16) for rows in (8, 8 * 64))
big = torch.empty(1 << 28, device="cuda")  # 1 GiB
cycles = [{"n": n} for n in range(1_500_000)]
for item in cycles:
    item["self"] = item
lock = threading.Lock()
CLOCK_HZ = 1_700_000_000


def step(name="execute_context_0(0)_generation_8(8)", plant=None, x=small):
    torch.cuda.nvtx.range_push(name)
    begin = time.time_ns()
    for weight in weights * 6:
        x = (x @ weight).clamp(-1, 1)
    if plant is not None:
        plant()
    x = (x @ weights[0]).clamp(-1, 1)
    torch.cuda.synchronize()
    torch.cuda.nvtx.range_pop()
    return time.time_ns() - begin


def usual(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        step()


def allocate():
    for number in range(150):
        block = torch.empty((64 << 20) + (number << 21), device="cuda", dtype=torch.uint8)
        del block
        torch.cuda.empty_cache()


def compile_new():
    # The code differs each time, so that it is compiled and loaded.
    code = f"template <typename T> T planted(T x) {{ return x * T({time.time_ns() % 10**6}) + T(1); }}"
    torch.cuda.jiterator._create_jit_fn(code)(small.float())


def wait_for_lock():
    held = threading.Event()

    def hold():
        with lock:
            held.set()
            time.sleep(0.3)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    lock.acquire()
    lock.release()
    thread.join()


def stopped():
    me = os.getpid()
    subprocess.Popen(["sh", "-c", f"kill -STOP {me}; sleep 0.3; kill -CONT {me}"])
    usual(1.0)


def hog():
    core = min(os.sched_getaffinity(0))
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    busy = "import os,time; os.sched_setaffinity(0,{%d}); t=time.time()+3.6\nwhile time.time()<t: pass" % core
    hogs = [subprocess.Popen([sys.executable, "-S", "-c", busy]) for _ in range(12)]
    usual(4.0)
    for process in hogs:
        process.wait()
    os.sched_setaffinity(0, before)


def in_step(plant):
    return lambda: step(plant=plant)


PLANTS = {
    "allocation": in_step(allocate),
    "garbage-collection": in_step(lambda: gc.collect()),
    "first-use": in_step(compile_new),
    "host-copy": in_step(lambda: big.cpu()),
    "slow-kernel": in_step(lambda: torch.cuda._sleep(CLOCK_HZ // 2)),
    "lock": in_step(wait_for_lock),
    "descheduled stop": stopped,
    "descheduled hog": hog,
    "none long-prompt": lambda: step("execute_context_1(512)_generation_8(8)", x=large),
    # A step that is open for longer than --hang is kept before it ends.
    "hang": in_step(lambda: torch.cuda._sleep(CLOCK_HZ * 2)),
}


def main():
    gc.disable()
    usual(2.0)
    if os.environ.get("MODE") == "quiet":
        times = [step() for _ in range(2000)]
        print(json.dumps({"median_ns": statistics.median(times), "p99_ns": sorted(times)[1980]}))
        return
    signal.signal(signal.SIGINT, lambda *_: sys.exit(130))
    with open(os.environ["PLANTED"], "w", encoding="utf-8") as planted:
        for _ in range(REPEATS):
            for cause, plant in PLANTS.items():
                usual(APART_S)
                begin = time.time_ns()
                plant()
                row = {"cause": cause, "begin_ns": begin, "end_ns": time.time_ns()}
                planted.write(json.dumps(row) + "\n")
                planted.flush()
                usual(0.3)
        usual(1.0)


main()
