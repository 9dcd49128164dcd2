#!/usr/bin/env python3
"""Checks a profiled run of DeepSeek-OCR and prints its figures."""

import argparse
import json
import pathlib
import sys

# As the hub counts the tensors of the published checkpoint.
PARAMETERS = 3_336_106_240

failures = []


def check(ok, text):
    print(("ok      " if ok else "FAILED  ") + text)
    if not ok:
        failures.append(text)


def load(run, name):
    path = run / name
    return json.loads(path.read_text()) if path.is_file() else {}


def stage_figures(stage, account):
    name = stage["name"]
    tokens = account.get("tokens") or {}
    repeats = [r for r in account.get("repeats", []) if not r["warmup"]]
    walls = [s["wall_ns"] for r in repeats for s in r["stages"] if s["name"] == name]
    count = tokens.get("prompt" if name == "prefill" else "generated") or 0
    if walls and count:
        best = min(walls)
        print(f"        {name}: without a profiler {best / 1e6:.2f} ms at best, {count * (tokens.get('batch') or 1) / best * 1e9:,.0f} tokens/s")
    print(f"        {name}: {stage['kernel_count']} kernels, kernel time {stage['kernel_ns'] / 1e6:.2f} ms in {stage['instances']} instances")
    for key, label in (("mfu", "MFU"), ("mbu", "MBU")):
        found = stage.get(key) or {}
        busy = found.get("by_busy_pct")
        print(f"        {name}: {label} {found.get('by_wall_pct')} % by wall" + (f", {busy} % by busy time" if busy is not None else ""))
    for kernel in stage["kernels"][:3]:
        print(f"        {kernel['total_ns'] / 1e6:10.3f} ms  {kernel['short_name']}")


def main():
    top = argparse.ArgumentParser(description=__doc__)
    top.add_argument("run", type=pathlib.Path)
    top.add_argument("--status", type=int, required=True)
    args = top.parse_args()
    record, metrics, account = (load(args.run, name) for name in ("session.json", "metrics.json", "baseline/workload.json"))
    check(args.status == 0, f"status {args.status}; missing: {record.get('missing')}")
    for phase in record.get("phases", []):
        if phase["asked"]:
            check(phase["status"] == "ok", f"{phase['name']} is {phase['status']}: {phase.get('why')}")
        for note in phase["notes"]:
            print(f"        {phase['name']}: {note}")
    model = account.get("model") or {}
    print(f"        {model.get('name')}, {model.get('weights')} weights, {model.get('active_parameters')} active parameters; {account.get('tokens')}")
    for note in account.get("notes", []):
        print(f"        {note}")
    check(model.get("parameters") == PARAMETERS, f"{model.get('parameters')} parameters")
    if model.get("weights") == "random":
        check(any("random weights" in note for note in account.get("notes", [])), "the account says that the weights are random")
    stages = {stage["name"]: stage for stage in metrics.get("stages", [])}
    measured = {counter["stage"] for counter in metrics.get("counters", [])}
    for name in ("prefill", "decode"):
        stage = stages.get(name)
        check(stage is not None and stage["kernel_count"] > 0, f"{name} has kernels")
        if stage is None:
            continue
        check(name in measured, f"{name} has counters")
        check(stage.get("mfu") is not None, f"{name} has an MFU")
        stage_figures(stage, account)
    parts = {note["name"] for note in stages.get("prefill", {}).get("notes", [])}
    check({"sam", "projector"} <= parts and parts & {"clip", "vision_encoder"}, f"parts of prefill: {sorted(parts)}")
    for row in metrics.get("overhead", []):
        print(f"        overhead of {row['tool']} in {row['stage']}: {row['ratio']:.2f}")
    if failures:
        print(f"{len(failures)} checks failed", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
