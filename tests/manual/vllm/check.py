#!/usr/bin/env python3
"""Compares the stages of a profiled vLLM program with the figures that the program printed."""

import argparse
import json
import pathlib
import sys

failures = []


def check(ok, text):
    print(("ok      " if ok else "FAILED  ") + text)
    if not ok:
        failures.append(text)


def load(run, name):
    path = run / name
    return json.loads(path.read_text()) if path.is_file() else {}


def figures(folder):
    """Returns what the program printed in a phase."""
    for path in sorted(folder.glob("*.out.log")):
        for line in path.read_text(errors="replace").splitlines():
            if line.startswith("FIGURES "):
                return json.loads(line.removeprefix("FIGURES "))
    return {}


def main():
    top = argparse.ArgumentParser(description=__doc__)
    top.add_argument("run", type=pathlib.Path)
    top.add_argument("--tool", required=True)
    args = top.parse_args()
    record, metrics = load(args.run, "session.json"), load(args.run, "metrics.json")
    timeline = next((phase for phase in record.get("phases", []) if phase["name"] == "timeline"), {})
    check(timeline.get("status") == "ok", f"timeline is {timeline.get('status')}: {timeline.get('why')}")
    used = timeline.get("tool")
    check(used == args.tool, f"recorded by {used}")
    for note in timeline.get("notes", []):
        print(f"        {note}")
    unwatched, watched = figures(args.run / "baseline"), figures(args.run / (used or "native"))
    print(f"        program, unwatched: {unwatched}")
    print(f"        program, watched:   {watched}")
    engine = metrics.get("engine") or {}
    check(engine.get("name") == "vLLM" and engine.get("version"), f"engine: {engine}")
    workload = metrics.get("workload") or {}
    print(f"        model: {workload.get('model')}, {workload.get('parameters')} parameters, {workload.get('dtype')}, {workload.get('weights')} weights")
    context = generation = 0
    step_ns = 0
    for stage in metrics.get("stages", []):
        tokens = stage.get("tokens") or {}
        context += tokens.get("context") or 0
        generation += tokens.get("generation") or 0
        steps = stage.get("steps") or {}
        step_ns += steps.get("count", 0) * steps.get("mean_ns", 0) or stage.get("projected_ns") or 0
        print(
            f"        {stage['name']}: {stage['instances']} steps, requests {stage.get('requests')}, tokens {stage.get('tokens')}, "
            f"{stage['kernel_count']} kernels, {stage.get('tokens_per_s')} tokens/s, median step {steps.get('p50_ns')} ns, "
            f"MFU {(stage.get('mfu') or {}).get('by_wall_pct')} %, MBU {(stage.get('mbu') or {}).get('by_wall_pct')} %"
        )
    names = {stage["name"] for stage in metrics.get("stages", [])}
    check({"prefill", "decode"} <= names, f"stages: {sorted(names)}")
    if watched:
        check(context == watched["prompt_tokens"], f"{context} context tokens, the program sent {watched['prompt_tokens']}")
        # The first token of each request comes from its last prefill step.
        expected = watched["generated_tokens"] - watched["requests"]
        check(generation == expected, f"{generation} generation tokens, the program had {expected} after the first of each request")
        if step_ns:
            ours, theirs = watched["generated_tokens"] / step_ns * 1e9, watched["generated_tokens"] / sum(watched["seconds"])
            print(f"        generated tokens/s: {ours:.0f} by the steps, {theirs:.0f} by the program ({ours / theirs:.3f})")
        if unwatched:
            print(f"        watched / unwatched, last round: {watched['seconds'][-1] / unwatched['seconds'][-1]:.3f}")
    totals = metrics.get("totals") or {}
    print(f"        {totals.get('kernel_count')} kernels in all; losses: {metrics.get('losses')}")
    if failures:
        print(f"{len(failures)} checks failed", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
