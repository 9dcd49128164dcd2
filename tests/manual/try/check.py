#!/usr/bin/env python3
"""Checks the `try.json` of a run: something is kept, no gain is above its bound, and what is kept has the same output."""

import json
import os
import sys


def factor(time):
    low, high = time["interval"] or (None, None)
    bound = "no bound" if time["bound_ratio"] is None else f"predicted at most {time['bound_ratio']:.2f}"
    interval = "no interval" if low is None else f"{low:.2f} to {high:.2f}"
    return f"{time['ratio']:.2f} ({interval}; {bound})" if time["ratio"] else "not measured"


def main(run):
    with open(os.path.join(run, "try.json"), encoding="utf-8") as file:
        trial = json.load(file)
    wrong = []
    if trial["state"] != "done":
        wrong.append(f"the trial is {trial['state']}: {trial['reason']}")
    for row in trial["rows"]:
        name = row["knob"]["id"] if row["knob"] else "together"
        memory = row["device_memory_bytes"]
        print(f"{name}: {row['verdict']}, {row['runs']} runs, output {row['output']['tokens']}, {memory} bytes; {row['reason'] or ''}")
        for time in row["times"]:
            print(f"    {time['of'].get('name', time['of']['kind'])}: {factor(time)}")
            if time["within_bound"] is False:
                wrong.append(f"{name}: the gain is above its bound")
        if row["verdict"] == "kept" and row["output"]["tokens"] != "identical":
            wrong.append(f"{name} is kept with another output")
    if not any(row["verdict"] == "kept" for row in trial["rows"]):
        wrong.append("nothing is kept")
    for line in [*trial["notes"], *(f"WRONG: {line}" for line in wrong)]:
        print(line)
    print("to keep it:", (trial["winner"] or {}).get("command"))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
