#!/usr/bin/env python3
"""Checks a profiled vLLM server: its stages, the tokens that the client counted, and the parts of the latency."""

import argparse
import json
import pathlib
import sys

failures = []


def check(ok, text):
    print(("ok      " if ok else "FAILED  ") + text)
    if not ok:
        failures.append(text)


def show(title, parts):
    print(f"        {title}: " + ", ".join(f"{part['part']} {part['mean_ns'] / 1e6:.3f} ms" for part in parts))


def main():
    top = argparse.ArgumentParser(description=__doc__)
    top.add_argument("run", type=pathlib.Path)
    top.add_argument("--capture", action="store_true")
    args = top.parse_args()
    metrics = json.loads((args.run / "metrics.json").read_text())
    stages = {stage["name"]: stage for stage in metrics["stages"]}
    check("decode" in stages, f"stages: {sorted(stages)}")
    for stage in stages.values():
        print(f"        {stage['name']}: {stage['instances']} steps, tokens {stage.get('tokens')}, {stage['kernel_count']} kernels, {stage.get('tokens_per_s')} tokens/s")
    account = json.loads((args.run / "native" / "workload.json").read_text())
    sent = account.get("requests") or {}
    serving = metrics.get("serving") or {}
    check(sent.get("failed") == 0 and sent.get("completed"), f"{sent.get('completed')} requests completed, {sent.get('failed')} failed")
    rate, client = serving.get("generation_tokens_per_s"), sent.get("tokens_per_s")
    print(f"        generated tokens/s: {rate} over the span of the steps, {client} by the client")
    # Other parts of the load are in the steps: its warm-up before the session's window, its ends around the captured one.
    latency = serving.get("latency") or {}
    check(latency.get("joined"), f"{latency.get('joined')} of {latency.get('requests')} requests joined; clock change {latency.get('clock_change_ns')} ns")
    show("time to first token", latency.get("ttft") or [])
    show("time per token", latency.get("token_time") or [])
    print(f"        stalls: {serving.get('stalls')}")
    print(f"        gauges: {({name: value for name, value in (sent.get('gauges') or {}).items() if 'usage' in name or 'requests' in name})}")
    if not args.capture:
        tokens = sum((stage.get("tokens") or {}).get("generation") or 0 for stage in stages.values())
        expected = (sent.get("output_tokens") or 0) - (sent.get("completed") or 0)
        check(tokens >= expected > 0, f"{tokens} generation tokens in all steps, {expected} of the measured requests")
    lost = {loss["id"]: loss["count"] for loss in metrics["losses"]}
    kernels = metrics["totals"]["kernel_count"]
    check(lost.get("launch_without_kernel", 0) <= kernels / 1000, f"{kernels} kernels; losses: {lost}")
    for finding in metrics["findings"]:
        print(f"        {finding['id']}: {finding['title']}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
