#!/usr/bin/env python3
"""Checks the files of a session (`session RUN`), and that two sessions agree (`pair RUN RUN`)."""

import argparse
import json
import pathlib
import re
import sys

FILES = """session.json env.json config.yaml inputs.yaml metrics.json kernels.md operators.md report.md
stakeholder_summary.md baseline/workload.json ncu/plan.json ncu/plan.ncu-rep ncu/plan_raw.csv""".split()
NSYS_FILES = "nsys/run.nsys-rep nsys/run.sqlite".split()
SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|API_?KEY", re.I)

failures = []


def check(ok, text):
    print(("ok      " if ok else "FAILED  ") + text)
    if not ok:
        failures.append(text)


def load(run, name):
    path = run / name
    return json.loads(path.read_text()) if path.is_file() else {}


def stages(run):
    return {stage["name"]: stage for stage in load(run, "metrics.json").get("stages", [])}


def session(run, status, took, limit):
    record, metrics, plan = load(run, "session.json"), load(run, "metrics.json"), load(run, "ncu/plan.json")
    check(status == 0, f"status {status}; missing: {record.get('missing')}")
    check(took < limit, f"{took} s of {limit} s")
    timeline = next((p for p in record.get("phases", []) if p["name"] == "timeline"), {})
    # Nsight Systems records a deep session wherever it is installed.
    nsys = record.get("mode") == "deep" and (load(run, "env.json").get("tools", {}).get("nsys") or {}).get("path")
    for name in FILES + (NSYS_FILES if nsys or timeline.get("tool") == "nsys" else []):
        path = run / name
        check(path.is_file() and path.stat().st_size > 0, f"{name} is there")
    for phase in record.get("phases", []):
        if phase["asked"]:
            check(phase["status"] == "ok", f"{phase['name']} is {phase['status']}: {phase.get('why')}")
        for note in phase["notes"]:
            print(f"        {phase['name']}: {note}")
    for name in ("prefill", "decode"):
        stage = stages(run).get(name, {})
        kernels = stage.get("kernels", [])
        check(bool(stage.get("kernel_ns")) and len(kernels) >= 3, f"{name} has kernels: {stage.get('kernel_count')}")
        for kernel in kernels[:3]:
            print(f"        {kernel['total_ns'] / 1e6:10.3f} ms  {kernel['short_name']}")
    for cover in plan.get("stages", []):
        check(cover["covered_pct"] >= 90, f"the plan covers {cover['covered_pct']:.1f} % of {cover['name']}")
    strata = plan.get("strata", [])
    came = sum(1 for stratum in strata if stratum.get("measured_launches"))
    check(strata and came >= 0.8 * len(strata), f"{came} of {len(strata)} strata came back")
    print(f"        replayed {plan.get('measured_launches')} of {plan.get('timeline_launches')} launches; expected {plan.get('expected_launches')}")
    check(bool(metrics.get("overhead")), "overhead is disclosed")
    both = metrics.get("agreement")
    check(bool(both) or not nsys, "two recordings are compared")
    if both:
        first, second = both["kernels"]
        check(abs(first - second) <= 0.02 * max(first, second), f"{both['profilers']} have {first} and {second} kernels")
        print(f"        kernel time {both['kernel_ns']} ns, step {both['step_ns']} ns")
    for row in metrics.get("overhead", []):
        print(f"        {row['tool']:15} {row['stage']:8} {row['ratio']:.2f}")
    base = load(run, "baseline/workload.json").get("token_hash")
    for folder in ("nsys", "native"):
        watched = load(run, f"{folder}/workload.json")
        if watched:
            check(base is not None and watched.get("token_hash") == base, f"tokens are the same under {folder}")
    names = load(run, "env.json").get("variables", {})
    check(not [name for name in names if SECRET.search(name)], "env.json names no secret")


def pair(first, second):
    for name, stage in stages(first).items():
        other = stages(second).get(name, {})
        for key in ("wall_ns", "kernel_ns"):
            a, b = stage.get(key), other.get(key)
            apart = abs(a - b) / max(a, b) * 100 if a and b else 100
            check(apart <= 10, f"{name} {key}: {a} and {b}, {apart:.1f} % apart")


def main():
    top = argparse.ArgumentParser(description=__doc__)
    modes = top.add_subparsers(dest="mode", required=True)
    one = modes.add_parser("session")
    one.add_argument("run", type=pathlib.Path)
    one.add_argument("--status", type=int, required=True)
    one.add_argument("--took", type=int, required=True)
    one.add_argument("--limit", type=int, required=True)
    two = modes.add_parser("pair")
    two.add_argument("first", type=pathlib.Path)
    two.add_argument("second", type=pathlib.Path)
    args = top.parse_args()
    if args.mode == "session":
        session(args.run, args.status, args.took, args.limit)
    else:
        pair(args.first, args.second)
    if failures:
        print(f"{len(failures)} checks failed", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
