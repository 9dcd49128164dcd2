#!/usr/bin/env python3
"""Compares the loop of each program with the program's own clock: the number of its steps, and the step time without a profiler within 3 %.

The five steps of warm-up before the clock starts may count."""

import glob
import json
import os
import sys

WARM_UP = 5


def check(folder):
    with open(os.path.join(folder, "clock.jsonl"), encoding="utf-8") as file:
        own = json.loads(file.readlines()[-1])
    runs = sorted(glob.glob(os.path.join(folder, "2*", "metrics.json")))
    if not runs:
        return False, "no run"
    with open(runs[-1], encoding="utf-8") as file:
        stages = json.load(file)["stages"]
    stage = next((stage for stage in stages if stage["kind"] == "loop"), None)
    if stage is None:
        return False, "no loop"
    count = (stage["steps"] or {}).get("count", 0)
    unprofiled = (stage["steady"] or {}).get("unprofiled_ns")
    # The GPU may lag behind the program: the mean has all of its work.
    apart = unprofiled and min((unprofiled / own[clock] - 1 for clock in ("mean_ns", "median_ns")), key=abs)
    known = f"{unprofiled / 1e6:.3f} ms, {100 * apart:+.1f} %" if unprofiled else "no time without a profiler"
    text = f"{count} repetitions of {own['steps']}, {known} of {own['mean_ns'] / 1e6:.3f} ms"
    return own["steps"] <= count <= own["steps"] + WARM_UP and bool(unprofiled) and abs(apart) <= 0.03, text


def main(out, *programs):
    results = {program: check(os.path.join(out, program)) for program in programs}
    for program, (right, text) in results.items():
        print(f"{'ok   ' if right else 'WRONG'} {program}: {text}")
    right = sum(right for right, _ in results.values())
    print(f"{right} of {len(results)}")
    return 0 if right == len(results) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
