#!/usr/bin/env python3
"""Checks a run of one model: phases, MFU and MBU of both stages, parameters, named layers (`check.py RUN NAME STATUS`)."""

import json
import pathlib
import sys


def main():
    run, name, status = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    session = json.loads((run / "session.json").read_text())
    analysis = json.loads((run / "metrics.json").read_text())
    wrong = [] if status == 0 else [f"status {status}"]
    phases = session["phases"]
    rows = phases.items() if isinstance(phases, dict) else [(phase.get("name", phase.get("phase")), phase) for phase in phases]
    wrong += [f"{phase}: {row['status']}: {row.get('reason') or row.get('why')}" for phase, row in rows if row["status"] == "failed"]
    workload = analysis.get("workload") or {}
    wrong += [f"no {key}" for key in ("parameters", "active_parameters", "weight_bytes") if not workload.get(key)]
    figures = []
    for stage in ("prefill", "decode"):
        found = next((row for row in analysis["stages"] if row["name"] == stage), None)
        for key in ("mfu", "mbu"):
            value = (found or {}).get(key)
            if value is None:
                reasons = [row for row in analysis.get("reasons", []) if stage in json.dumps(row) and key in json.dumps(row).lower()]
                wrong.append(f"{stage} has no {key}: {reasons}")
            else:
                figures.append(f"{stage} {key} {value['by_wall_pct']:.3f} %")
    blocks = sorted({row["block"] for row in analysis["layers"] if row.get("block")})
    named = sum(row["share_pct"] for row in analysis["layers"] if row["layer"] and row["stage"] == "decode")
    if named < 50:
        wrong.append(f"layers are named for {named:.0f} % of the kernel time of decode")
    notes = [text for text in ((analysis["stages"] or [{}])[0].get("mfu") or {}).get("assumptions", []) if "layers" in text]
    print(f"{'FAILED' if wrong else 'ok':7} {name}: {workload.get('parameters', 0):,} parameters; {', '.join(figures)}; "
          f"blocks {', '.join(blocks)} ({named:.0f} % of decode)")
    for line in wrong + notes:
        print(f"        {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
