#!/usr/bin/env python3
"""Prints the layers of a run, or compares those of two: the same layers, kernels and calls."""

import json
import pathlib
import sys


def layers(run):
    rows = json.loads((pathlib.Path(run) / "metrics.json").read_text())["layers"]
    return {(row["stage"], row["layer"]): row for row in rows}


def show(run):
    metrics = json.loads((pathlib.Path(run) / "metrics.json").read_text())
    for row in metrics["layers"]:
        spread = row["spread"]
        per_layer = f"{spread['min_ns'] / 1e6:.3f} to {spread['max_ns'] / 1e6:.3f} ms" if spread else ""
        print(
            f"{row['stage']:8} {row['layer'] or '(no module)':50} {row['layers'] or '':>4} {row['kernel_ns'] / 1e6:10.3f} ms"
            f" {row['share_pct']:5.1f} % {row['kernel_count']:8} kernels {row['calls'] or '':>7} calls  {per_layer}"
        )
    for reason in metrics["reasons"]:
        if reason["about"] == "layers":
            print("reason:", reason["why"])
    for loss in metrics["losses"]:
        print("loss:", loss["id"], loss["count"])


def compare(one, other):
    a, b = layers(one), layers(other)
    failed = 0
    for key in sorted(set(a) | set(b), key=str):
        own, theirs = a.get(key), b.get(key)
        same = own and theirs and (own["kernel_count"], own["calls"], own["layers"]) == (theirs["kernel_count"], theirs["calls"], theirs["layers"])
        failed += not same
        show_row = lambda row: (row["kernel_count"], row["calls"], row["layers"], row["kernel_ns"]) if row else None  # noqa: E731
        print("ok    " if same else "DIFFER", key, show_row(own), show_row(theirs))
    print(f"{failed} of {len(set(a) | set(b))} layers differ")
    return 1 if failed or not a else 0


if __name__ == "__main__":
    if len(sys.argv) == 3:
        sys.exit(compare(*sys.argv[1:]))
    show(sys.argv[1])
