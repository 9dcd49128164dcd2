#!/usr/bin/env python3
"""Prints each stage as recorded, without its profiler, and as it was in runs without one. See README.md."""

import argparse
import glob
import json
import os
import statistics
import subprocess


def unprofiled(run):
    """Returns the time of a unit of each stage in the run's baseline, ns: a step, or the whole stage where it has no steps."""
    with open(os.path.join(run, "baseline", "workload.json"), encoding="utf-8") as file:
        account = json.load(file)
    times = {}
    for repeat in account["repeats"]:
        for stage in repeat["stages"] if not repeat["warmup"] else []:
            steps = stage["steps_ns"] or [stage["wall_ns"]]
            times.setdefault(stage["name"], []).append(sum(steps) / len(steps))
    return {name: statistics.median(values) for name, values in times.items()}


def stages(metrics):
    """Returns the recorded time of a unit of each stage, and the stage without its profiler."""
    return {stage["name"]: (stage["steady"]["time_ns"], stage) for stage in metrics["stages"] if stage.get("steady")}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out")
    parser.add_argument("--roofgap", required=True)
    arguments = parser.parse_args()
    differences, covered, cells = [], 0, 0
    print("| program, tool | stage | recorded | without the profiler (interval) | unprofiled | | limit |\n|---|---|---|---|---|---|---|")
    for folder in sorted(glob.glob(os.path.join(arguments.out, "*", ""))):
        program = os.path.basename(folder.rstrip("/"))
        runs = {os.path.basename(path): sorted(glob.glob(os.path.join(path, "2*")))[-1] for path in glob.glob(folder + "*") if glob.glob(os.path.join(path, "2*"))}
        free = {name: unprofiled(run) for name, run in runs.items()}
        found = {}
        for tool in ("nsys", "native"):
            path = os.path.join(runs.get(tool, "-"), "metrics.json")
            if os.path.exists(path):
                with open(path, encoding="utf-8") as file:
                    found[tool] = (tool, stages(json.load(file)))
        for trace in glob.glob(os.path.join(runs.get("nsys", "-"), "torch", "*trace*")):
            stated = [f"--unprofiled={name}={value / 1e6:.6f}ms" for name, value in free["nsys"].items()]
            done = subprocess.run([arguments.roofgap, "analyze", trace, "--format", "json", *stated], capture_output=True, text=True)
            if done.returncode == 0:
                found["torch.profiler"] = ("nsys", stages(json.loads(done.stdout)))
            else:
                print("torch.profiler:", done.stderr.strip()[-300:])
        for tool, (session, of_tool) in found.items():
            others = [times for name, times in free.items() if name != session]
            for name, (recorded, stage) in of_tool.items():
                known = [times[name] for times in others if name in times]
                corrected = stage.get("corrected")
                if not known:
                    continue
                free_ns = statistics.mean(known)
                start = f"| {program}, {tool} | {name} | {recorded / 1e6:.2f} | "
                if not corrected:
                    print(start + f"none | {free_ns / 1e6:.2f} | {(recorded / free_ns - 1) * 100:+.0f} % as recorded | |")
                    continue
                difference = corrected["step_ns"] / free_ns - 1
                inside = corrected["low_ns"] <= free_ns <= corrected["high_ns"]
                cells, covered = cells + 1, covered + inside
                differences.append(abs(difference))
                spread = " to ".join(f"{value / 1e6:.2f}" for value in sorted(known))
                print(start + f"{corrected['step_ns'] / 1e6:.2f} ({corrected['low_ns'] / 1e6:.2f} to {corrected['high_ns'] / 1e6:.2f}) | {spread} | "
                      f"{difference * 100:+.0f} %{'' if inside else ', missed'} | {stage.get('limit')}, {corrected['limit']} |")
    if differences:
        print(f"\ncovered {covered} of {cells}; median difference {statistics.median(differences) * 100:.1f} %")


if __name__ == "__main__":
    main()
