#!/usr/bin/env python3
"""Compares the ranks of a profiled job with the figures that the program printed."""

import argparse
import json
import pathlib
import sys

failures = []


def check(ok, text):
    print(("ok      " if ok else "FAILED  ") + text)
    if not ok:
        failures.append(text)


def figures(run):
    for path in sorted(run.glob("*/*.out.log")):
        for line in path.read_text(errors="replace").splitlines():
            if "FIGURES " in line:
                return json.loads(line.split("FIGURES ", 1)[1])
    return None


def main():
    top = argparse.ArgumentParser(description=__doc__)
    top.add_argument("run", type=pathlib.Path)
    args = top.parse_args()
    record = json.loads((args.run / "session.json").read_text())
    metrics = json.loads((args.run / "metrics.json").read_text())
    timeline = next((phase for phase in record["phases"] if phase["name"] == "timeline"), {})
    check(timeline.get("status") == "ok", f"timeline is {timeline.get('status')} by {timeline.get('tool')}: {timeline.get('why')}")
    for note in timeline.get("notes", []):
        print(f"        {note}")
    told = figures(args.run)
    check(told is not None and told["good"], f"the program printed {told}")
    told = told or {"steps": 0, "bytes": 0, "transfers": 0}
    ranks, job = metrics.get("ranks") or [], metrics.get("job") or {}
    check([rank["rank"] for rank in ranks] == [0, 1], f"ranks {[rank['rank'] for rank in ranks]}, world size {job.get('world_size')}")
    check(job.get("world_size") == 2 and not job.get("missing"), f"missing ranks {job.get('missing')}")
    for rank in ranks:
        print(
            f"        rank {rank['rank']} on {rank['host']}: {rank['kernel_count']} kernels, {rank['kernel_ns']} ns, communication "
            f"{rank['communication_ns']} ns, exposed {rank['exposed_ns']} ns, waited {rank['waited_ns']} ns, waited for "
            f"{rank['waited_for_ns']} ns, clock {rank['clock_offset_ns']} ± {rank['clock_error_ns']} ns"
        )
        check(rank["kernel_count"] > 0, f"rank {rank['rank']} has {rank['kernel_count']} kernels")
        check(bool(rank["host"]), f"rank {rank['rank']} names its host")
    if len(ranks) == 2:
        check(ranks[1]["kernel_count"] > 2 * ranks[0]["kernel_count"], "rank 1 has more kernels")
        offset = ranks[1]["clock_offset_ns"]
        check(offset is not None and abs(offset) <= max(ranks[1]["clock_error_ns"], 1_000_000), f"one machine, clocks apart by {offset} ns")
    rows = {row["collective"]: row for row in job.get("collectives", [])}
    reduce = rows.get("all_reduce") or {}
    check(reduce.get("count") == told["steps"], f"{reduce.get('count')} all-reduces matched by {reduce.get('matched_by')}, {told['steps']} ran")
    check(reduce.get("bytes") == told["steps"] * told["bytes"], f"{reduce.get('bytes')} bytes of all-reduce")
    check(reduce.get("last_rank") == 1, f"rank {reduce.get('last_rank')} arrived last {reduce.get('last_count')} times")
    gather = rows.get("all_gather") or {}
    check((gather.get("count"), gather.get("bytes")) == (1, 8000), f"all-gather: {gather.get('count')} of {gather.get('bytes')} bytes")
    late = [row for row in job.get("stragglers", []) if row["rank"] == 1]
    check(bool(late), f"stragglers: {job.get('stragglers')}")
    transfers = (job.get("transfers") or [{}])[0]
    found = (transfers.get("from"), transfers.get("to"), transfers.get("count"), transfers.get("bytes"))
    check(found == (0, 1, told["transfers"], told["transfers"] * 2000), f"transfers: {found}")
    own = [row for row in metrics.get("communication", []) if row["on"] == "cpu"]
    check({"all_reduce", "all_gather", "barrier"} <= {row["collective"] for row in own}, f"communication: {own}")
    print(f"        other processes: {job.get('other_processes')}")
    print(f"        losses: {metrics.get('losses')}")
    for reason in metrics.get("reasons", []):
        print(f"        {reason}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
