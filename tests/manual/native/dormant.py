"""Measures a dormant collector against none: the CPU time of a launch in a loop of empty kernels.

A process launches blocks of kernels, loads the collector as the driver does, and launches as many again. The ratio of the two halves is
divided by that of a process of the same round that loads nothing, so that neither the process nor a drift counts. Rounds have one
process of each kind, in changing order; the result is the median over the rounds with a bootstrap interval of 95 %.

Writes dormant.md and dormant.json to the folder OUT, and prints the table.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time

from pairs import ROOT, interval

HERE = os.path.dirname(os.path.abspath(__file__))

# Name, argument of launches.c, settings of the collector.
KINDS = [
    ("none", "none", None),
    ("loaded, never armed", "load", {"dormant": "lazy"}),
    ("loaded with CUPTI, never armed", "load", {"dormant": "1"}),
    ("armed once, disarmed", "arm", {"dormant": "lazy"}),
    ("armed once, disarmed, CUPTI detached", "finalize", {"dormant": "lazy"}),
    ("loaded by the driver, never armed", "injected", {"dormant": "lazy"}),
]

# The parts of CUPTI that stay slow after they were on, without the collector.
PARTS = [
    ("none", "none", None),
    ("kernel records", "cupti:k", None),
    ("callbacks", "cupti:c", None),
    ("callbacks, unsubscribed", "cupti:cu", None),
    ("records of all calls", "cupti:r", None),
    ("kernel records, callbacks", "cupti:kc", None),
    ("kernel records, callbacks, unsubscribed", "cupti:kcu", None),
    ("all, unsubscribed, detached", "cupti:kcruf", None),
]


def program(out):
    """Returns the compiled launches.c."""
    given = os.environ.get("ROOFGAP_LAUNCHES")
    if given:
        return given
    path = os.path.join(out, "launches")
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        sys.exit("no C compiler; ROOFGAP_LAUNCHES names a compiled launches.c")
    subprocess.run([compiler, "-O2", "-w", "-o", path, os.path.join(HERE, "launches.c"), "-ldl"], check=True)
    return path


def measure(arguments, path, how, settings):
    """Runs one process. Returns the medians of its two halves, ns."""
    env = {name: value for name, value in os.environ.items() if "INJECTION64" not in name and not name.startswith("ROOFGAP_NATIVE")}
    env["COLLECTOR"] = arguments.library
    folder = os.path.join(arguments.out, "dormant-captures")
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    if settings:
        env["ROOFGAP_NATIVE_DIR"] = folder
        env.update({"ROOFGAP_NATIVE_" + name.upper(): value for name, value in settings.items()})
    if how == "injected":
        env["CUDA_INJECTION64_PATH"] = arguments.library
    done = subprocess.run([path, how, str(arguments.blocks)], env=env, capture_output=True, text=True, timeout=30)
    if done.returncode != 0:
        raise RuntimeError(f"{how}: status {done.returncode} {done.stderr[-500:]}")
    found = json.loads(done.stdout)
    return statistics.median(found["before"]), statistics.median(found["after"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", nargs="?", default=os.path.join(ROOT, "tmp", "native-dormant"))
    library = os.path.join(ROOT, "target", "release", "libroofgap_inject.so")
    parser.add_argument("--library", default=os.environ.get("ROOFGAP_INJECT", library))
    parser.add_argument("--rounds", type=int, default=24, help="processes of each kind, at least 20")
    parser.add_argument("--blocks", type=int, default=12, help="blocks of 5,000 launches in each half of a process")
    parser.add_argument("--budget", type=float, default=90, help="seconds for all")
    parser.add_argument("--parts", action="store_true", help="measure parts of CUPTI after they were on; needs CUPTI_LIBRARY")
    arguments = parser.parse_args()
    arguments.library = os.path.abspath(arguments.library)
    arguments.out = os.path.abspath(arguments.out)
    os.makedirs(arguments.out, exist_ok=True)
    path = program(arguments.out)
    begun = time.monotonic()
    rounds, failures = [], {}
    kinds = PARTS if arguments.parts else KINDS
    while len(rounds) < arguments.rounds and time.monotonic() - begun < arguments.budget:
        turn = len(rounds) % len(kinds)
        found = {}
        for name, how, settings in kinds[turn:] + kinds[:turn]:
            try:
                found[name] = measure(arguments, path, how, settings)
            except RuntimeError as error:
                failures.setdefault(name, str(error))
        rounds.append(found)
    lines = [
        f"CPU time of a launch, {len(rounds)} rounds:",
        "",
        "| collector | launch, ns | to none | 95 % interval |",
        "|---|---|---|---|",
    ]
    table = []
    for name, how, _ in kinds:
        if name in failures:
            lines.append(f"| {name} | failed: {failures[name]} | | |")
            continue
        halves = [found[name] for found in rounds]
        if how == "injected":
            # The library is there from the start, so that both halves have it; the processes of a round are compared.
            ratios = [found[name][1] / found["none"][1] for found in rounds]
        elif how == "none":
            # The noise: each process against that of the round before.
            drifts = [after / before for before, after in halves]
            ratios = [later / earlier for earlier, later in zip(drifts, drifts[1:])]
        else:
            ratios = [(found[name][1] / found[name][0]) / (found["none"][1] / found["none"][0]) for found in rounds]
        low, high = interval(ratios)
        row = {"collector": name, "launch_ns": statistics.median(after for _, after in halves), "ratio": statistics.median(ratios), "low": low, "high": high}
        table.append(row)
        note = " (separate processes)" if how == "injected" else " (the noise)" if how == "none" else ""
        lines.append(f"| {name}{note} | {row['launch_ns']:.0f} | {row['ratio']:.3f} | {low:.3f} to {high:.3f} |")
    text = "\n".join(lines) + "\n"
    with open(os.path.join(arguments.out, "dormant.md"), "w") as file:
        file.write(text)
    with open(os.path.join(arguments.out, "dormant.json"), "w") as file:
        json.dump({"table": table, "rounds": rounds}, file, indent=1)
    print(text, flush=True)


if __name__ == "__main__":
    main()
