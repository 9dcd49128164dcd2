#!/usr/bin/env python3
"""Searches of the embedded model among changes that change nothing: no search may find a gain. Also prints the times of its first runs.

usage: scripts/tune-null.py ROOFGAP [SEARCHES [FOLDER]]      (20 searches by default)
"""

import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

SPACE = "[{env: NOTHING, values: [1, 2]}, {env: NOUGHT, values: [1]}]\n"
MODEL = ["workload.size=nano", "workload.tokens=8", "workload.prompt_tokens=16", "workload.threads=1", "workload.repeats=3", "workload.warmup=1"]


def main():
    roofgap = str(pathlib.Path(sys.argv[1]).resolve())
    searches = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    folder = pathlib.Path(sys.argv[3] if len(sys.argv) > 3 else tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "space.yaml").write_text(SPACE)
    profile = [roofgap, "profile", "runner=unwatched", f"artifacts.stage2_dir='{folder}/runs'", *MODEL]
    subprocess.run(profile, check=True, capture_output=True)
    run = next((folder / "runs").iterdir())
    wins, times, runs, proofs = 0, [], 0, 0
    for number in range(searches):
        search = [roofgap, "tune", str(run), "--yes", "--space", str(folder / "space.yaml"), "--least", "1.0", "--budget", "10m"]
        found = subprocess.run(search, capture_output=True, text=True)
        if found.returncode != 0:
            print(f"search {number}: status {found.returncode}: {found.stderr[-300:]}")
        record = run / "tune.json"
        trial = json.loads(record.read_text())["trials"][0]
        verified = subprocess.run([roofgap, "tune", "verify", str(record)], capture_output=True, text=True)
        if verified.returncode != 0:
            sys.exit(f"search {number} does not verify: {verified.stdout}{verified.stderr}")
        wins += trial["winner"] is not None
        runs += len(trial["runs"])
        proofs += trial["search"]["proofs"]
        times += [each["sample"]["times"][0][1] for each in trial["runs"] if each["sample"]]
        record.rename(folder / f"tune-{number}.json")
    median = statistics.median(times)
    print(f"{wins} false wins in {searches} searches, {proofs} proofs, {runs} runs")
    print("times relative to their median:", ", ".join(f"{time / median:.4f}" for time in times[:40]))


main()
