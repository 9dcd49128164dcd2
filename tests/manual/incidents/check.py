"""Compares planted causes with the incidents that were kept, and prints a table. Fails below 95 % recall or precision."""

import json
import statistics
import sys
from pathlib import Path

SLACK_NS = 400_000_000


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def main():
    out = Path(sys.argv[1])
    lines = (out / "planted.jsonl").read_text(encoding="utf-8").splitlines()
    planted = [json.loads(line) for line in lines]
    runs = sorted((out / "runs").glob("*/incident.json"))
    incidents = [(path.parent, read(path)) for path in runs]
    used, found, wrong, kept_whole = set(), {}, [], []
    for plant in planted:
        wanted = plant["cause"].split()[0]
        near = [
            (run, incident)
            for run, incident in incidents
            if plant["begin_ns"] - SLACK_NS <= incident["unix_ns"] <= plant["end_ns"] + SLACK_NS
        ]
        used.update(run for run, _ in near)
        causes = [(incident["cause"] or {}).get("cause", "none") for _, incident in near]
        triggers = [incident["trigger"] for _, incident in near]
        if wanted == "none":
            is_right = not near or all(cause == "none" for cause in causes)
        elif wanted == "hang":
            is_right = "no-step" in triggers
        else:
            is_right = wanted in causes
        row = found.setdefault(plant["cause"], [0, 0, []])
        row[0] += 1
        row[1] += is_right
        row[2] += [f"{trigger}:{cause}" for trigger, cause in zip(triggers, causes)] or ["not kept"]
        if is_right and near and row[1] == 1:
            kept_whole.append(near[0][0].relative_to(out))
    print(f"{'planted':24}{'times':>6}{'found':>6}  answers")
    for cause, (times, right, answers) in found.items():
        print(f"{cause:24}{times:>6}{right:>6}  {', '.join(sorted(set(answers)))}")
    wrong = [(run.name, incident["what"]) for run, incident in incidents if run not in used]
    for name, what in wrong:
        print(f"not planted: {name}: {what}")
    dumps = [incident["dump_ms"] for _, incident in incidents]
    sizes = [sum(file.stat().st_size for file in run.rglob("*") if file.is_file()) for run, _ in incidents]
    if dumps:
        print(f"kept: {len(dumps)}; ms until kept: median {statistics.median(dumps)}, most {max(dumps)}; most MB {max(sizes) / 1e6:.1f}")
    for incident in (incident for _, incident in incidents[:3]):
        print("notes:", incident["notes"])
    try:
        quiet, recorded = read(out / "quiet.json"), read(out / "quiet_recorded.json")
        ratio = recorded["median_ns"] / quiet["median_ns"]
        print(f"median step {quiet['median_ns'] / 1e6:.3f} ms alone, {recorded['median_ns'] / 1e6:.3f} ms recorded: {ratio:.3f}")
    except (OSError, ValueError) as error:
        print(f"no overhead: {error}")
    (out / "examples.list").write_text("\n".join(f"{run}/native" for run in kept_whole[:3]) + "\n", encoding="utf-8")
    times, right = sum(row[0] for row in found.values()), sum(row[1] for row in found.values())
    print(f"recall {right}/{times}, incidents that nobody planted: {len(wrong)}")
    sys.exit(0 if times and right >= 0.95 * times and len(wrong) <= 0.05 * len(incidents) else 1)


main()
