#!/usr/bin/env python3
"""Checks that the counters of a job are those of one rank."""

import argparse
import csv
import json
import pathlib
import sys


def main():
    top = argparse.ArgumentParser(description=__doc__)
    top.add_argument("run", type=pathlib.Path)
    top.add_argument("--rank", type=int, required=True)
    args = top.parse_args()
    record = json.loads((args.run / "session.json").read_text())
    phase = next(phase for phase in record["phases"] if phase["name"] == "counters")
    print(f"        counters is {phase['status']}: {phase.get('why')}")
    for note in phase.get("notes", []):
        print(f"        {note}")
    raw = args.run / "ncu/plan_raw.csv"
    lines = raw.read_text().splitlines() if raw.exists() else []
    begin = next((at for at, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    # The second row has the units.
    rows = list(csv.DictReader(lines[begin:]))[1:]
    processes = {row["Process ID"] for row in rows}
    column = next((name for name in (rows[0] if rows else {}) if "Start/Stop_Range" in name), None)
    ranges = {row[column] for row in rows} if column else set()
    print(f"        {len(rows)} launches of processes {sorted(processes)} in ranges {sorted(ranges)}")
    checks = [
        (phase["status"] == "ok", "the phase is ok"),
        (bool(rows), "launches were measured"),
        (len(processes) == 1, "all of one process"),
        (any(f"the counters are those of rank {args.rank};" in note for note in phase.get("notes", [])), "the session names the rank"),
    ]
    for ok, text in checks:
        print(("ok      " if ok else "FAILED  ") + text)
    sys.exit(0 if all(ok for ok, _ in checks) else 1)


if __name__ == "__main__":
    main()
