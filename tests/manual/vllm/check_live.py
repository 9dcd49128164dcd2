#!/usr/bin/env python3
"""Compares the time between tokens in windows with and without samples, and sampled bandwidth with that of NVML's GPM. usage: check_live.py OUT RUN SECONDS"""

import datetime
import json
import pathlib
import random
import statistics
import sys


def window(run, seconds):
    record = json.loads((pathlib.Path(run) / "session.json").read_text())
    phase = next(phase for phase in record["phases"] if phase["name"] == "timeline")
    start = int(datetime.datetime.fromisoformat(phase["started"]).timestamp() * 1e9)
    return start, start + int(seconds * 1e9)


def interval(ratios):
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(4000))
    return f"{statistics.median(ratios):.4f} ({medians[100]:.4f} to {medians[-101]:.4f}), {len(ratios)} pairs"


def main(out, run, seconds):
    sent = json.loads((out / "load.json").read_text())["requests"]
    began = sent["start_unix_ns"]
    print(f"requests: {sent['completed']} completed, {sent['failed']} failed; between tokens {sent['itl_ns']}")
    # Times of a request are since the start of the load.
    times = [each for each in sent.get("each") or [] if (each.get("output_tokens") or 0) > 1]
    rounds = []
    for line in (out / "windows").read_text().splitlines():
        name, where = line.split()
        if name == "none":
            rounds.append({})
        start, end = (int(where), int(where) + int(seconds * 1e9)) if name == "none" else window(where, seconds)
        # Requests of which most lies in the window.
        tokens = [
            (each["last_ns"] - each["first_ns"]) / (each["output_tokens"] - 1)
            for each in times
            if min(end, began + each["last_ns"]) - max(start, began + each["first_ns"]) > 0.7 * (each["last_ns"] - each["first_ns"])
        ]
        if rounds and tokens:
            rounds[-1][name] = statistics.median(tokens)
    for name, other in (("plain", "none"), ("counters", "plain"), ("stacks", "plain"), ("counters", "none"), ("stacks", "none")):
        ratios = [each[name] / each[other] for each in rounds if name in each and other in each]
        if ratios:
            print(f"time between tokens, {name} to {other}: {interval(ratios)}")
    metrics = json.loads((run / "metrics.json").read_text())
    print("losses:", {loss["id"]: loss["count"] for loss in metrics["losses"]})
    wall_ns, moved = 0, 0
    for stage in metrics["stages"]:
        measured = stage.get("mbu_measured") or {}
        elapsed_ns = stage.get("period_ns") or stage["wall_ns"]
        wall_ns, moved = wall_ns + elapsed_ns, moved + elapsed_ns * (measured.get("by_wall_pct") or 0)
        print(f"{stage['name']}: {stage['instances']} steps, measured {json.dumps(measured)}")
        idle = stage.get("host_idle") or {}
        print(f"    idle {idle}")
        for row in (stage.get("host") or [])[:8]:
            share = 100 * row["self_ns"] / max(1, idle.get("idle_ns", 1))
            print(f"    {share:5.1f} % {row['kind']:16} {row['function']} ({row['file']}:{row['line']}) part {row['part']}")
    start, end = window(run, 3)
    path = out / "gpm.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    inside = [row for row in rows if row["start"] >= start and row["end"] <= end]
    if inside and wall_ns:
        gpm = statistics.fmean(row["dram_pct"] for row in inside)
        print(f"DRAM by GPM {gpm:.2f} %, by the samples over the stages {moved / wall_ns:.2f} %")
    else:
        print(f"GPM: {len(rows)} rows, {len(inside)} in the window")
    for finding in metrics["findings"][:6]:
        print(f"{finding['id']}: {finding['title']}")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), float(sys.argv[3]))
