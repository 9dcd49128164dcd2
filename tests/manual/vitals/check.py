#!/usr/bin/env python3
"""Reads what run.sh left and prints its tables. Status 1 where a limit of the issue is not met."""

import glob
import json
import os
import sys

SILENT = ("throttled", "other-tenant", "clock-ramp")


def metrics(run):
    with open(os.path.join(run, "metrics.json"), encoding="utf-8") as source:
        return json.load(source)


def free(out):
    """Counts the findings about vitals in captures of a program that nothing limits."""
    counts, capped, seen = dict.fromkeys(SILENT, 0), 0, 0
    for run in sorted(glob.glob(f"{out}/free/*/")):
        try:
            found = metrics(run)
        except OSError as error:
            print("no metrics:", error)
            continue
        stages = [stage["vitals"] for stage in found["stages"] if stage.get("vitals")]
        seen += bool(stages)
        reasons = [f"{time['reason']} {time['pct']:.0f} %" for stage in stages for time in stage["throttle"] if time["pct"] > 10]
        capped += bool(reasons)
        names = [finding["id"] for finding in found["findings"] if finding["id"] in SILENT]
        clocks = [round(stage["sm_mhz"]) for stage in stages if stage["sm_mhz"]]
        print(os.path.basename(run.rstrip("/")), "MHz", clocks, "reasons", reasons, "findings", names)
        if not reasons:
            for name in names:
                counts[name] += 1
    print(f"free captures with vitals: {seen}; with a reason for a lower clock: {capped}; findings in the others: {counts}")
    return seen > 0 and counts["throttled"] == counts["other-tenant"] == 0


def tokens(out):
    """Prints joules per token of each stage with the interval of the fit."""
    print("model batch stage run J/token half-interval W idle-share meter-J parts/meter")
    good = True
    for run in sorted(glob.glob(f"{out}/tokens/*/2*/")):
        name = run.rstrip("/").split("/")[-2]
        found = metrics(run)
        energy = (found.get("vitals") or {}).get("energy")
        if not energy:
            print(name, "no energy", [reason for reason in found["reasons"] if "vitals" in reason["about"]])
            good = False
            continue
        parts = energy["outside_idle_j"] + energy["outside_dynamic_j"]
        rows = []
        for stage in found["stages"]:
            own = (stage.get("vitals") or {}).get("energy")
            if own:
                parts += own["joules"]
                rows.append((stage["name"], own))
        whole = parts / energy["meter_j"]
        good &= abs(whole - 1) < 0.02
        for stage, own in rows:
            token, error = own["token_j"], own["error_j"]
            half = token * error / own["joules"] if token and error is not None else None
            text = f"{token:.5g}" if token else "-"
            interval = f"{half:.2g}" if half is not None else f"with {own.get('together_with')}"
            print(name, stage, own["run"], text, interval, f"{own['watts']:.0f}", f"{own['idle_j'] / own['joules']:.2f}", f"{energy['meter_j']:.0f}", f"{whole:.4f}")
    return good


if __name__ == "__main__":
    done = {"free": free, "tokens": tokens}[sys.argv[1]](sys.argv[2])
    print(f"{sys.argv[1]}: {'within the limits' if done else 'NOT within the limits'}")
    sys.exit(not done)
