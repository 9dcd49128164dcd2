#!/usr/bin/env python3
"""Compares the stages of a profiled transformers program with the figures that the program printed."""

import json
import pathlib
import sys

failures = []


def check(ok, text):
    print(("ok      " if ok else "FAILED  ") + text)
    if not ok:
        failures.append(text)


def main(run):
    record, metrics = (json.loads((run / name).read_text()) for name in ("session.json", "metrics.json"))
    timeline = next(phase for phase in record["phases"] if phase["name"] == "timeline")
    check(timeline["status"] == "ok", f"timeline is {timeline['status']}: {timeline.get('why')}")
    lines = "\n".join(path.read_text(errors="replace") for path in (run / "native").glob("*.out.log")).splitlines()
    printed = [json.loads(line.removeprefix("FIGURES ")) for line in lines if line.startswith("FIGURES ")]
    check(len(printed) == 1, f"the program printed {printed}")
    if not printed:
        return 1
    program = printed[0]
    stages = {stage["name"]: stage for stage in metrics["stages"]}
    check({"prefill", "decode"} <= set(stages) or {"mixed", "decode"} <= set(stages), f"stages: {sorted(stages)}")
    for stage in stages.values():
        steps = stage.get("steps") or {}
        print(
            f"        {stage['name']}: {stage['instances']} instances, {steps.get('count')} steps, tokens {stage.get('tokens')}, "
            f"{stage['kernel_count']} kernels, {stage.get('tokens_per_s')} tokens/s, median step {steps.get('p50_ns')} ns, "
            f"cold start {stage.get('cold_start')}"
        )
    batch, steps = program["batch"], program["steps"]
    decode = stages.get("decode") or {}
    if program["mode"] == "batching":
        tokens = [stage.get("tokens") or {} for stage in stages.values()]
        context, generation = (sum(each.get(kind) or 0 for each in tokens) for kind in ("context", "generation"))
        busy = [stages[name] for name in ("decode", "mixed") if name in stages]
        ns = sum(stage.get("period_ns") or 0 for stage in busy)
    else:
        # One row for each step of decode, in order; the last round is the one that the program timed.
        each = (decode.get("steps") or {}).get("each_ns") or []
        context = (stages.get("prefill") or {}).get("instances", 0) * program["prompt_tokens"] // (program["requests"] // batch)
        generation = len(each) * batch
        ns = sum(each[-steps:])
    expected = program["generated_tokens"] - program["requests"]
    check(context == program["prompt_tokens"], f"{context} context tokens, the program sent {program['prompt_tokens']}")
    check(generation == expected, f"{generation} generation tokens, the program had {expected} after the first of each request")
    if ns:
        count = generation if program["mode"] == "batching" else batch * steps
        ours, theirs = count * 1e9 / ns, program["decode_tokens_per_s"]
        check(abs(ours / theirs - 1) <= 0.02, f"decode tokens/s: {ours:.0f} by the steps, {theirs:.0f} by the program ({ours / theirs:.3f})")
    lost = {loss["id"]: loss["count"] for loss in metrics["losses"]}
    missing, kernels = lost.get("launch_without_kernel", 0), metrics["totals"]["kernel_count"]
    check(missing <= kernels / 1000, f"{kernels} kernels; launches without one: {missing}; losses: {lost}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
