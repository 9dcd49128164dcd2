#!/usr/bin/env python3
"""Compares what findings predict with what removing their cause saved.

usage: check.py OUT [TABLE.md]    OUT has what run.sh left, also in folders for several runs. With ROOFGAP the captures are analysed again, else
their metrics count.
"""

import fnmatch
import importlib
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tarfile
import tempfile
from unittest import mock

HERE = pathlib.Path(__file__).parent
MISSING = "–"


def known_cases():
    """Returns the programs. Their descriptions need no torch."""
    torch = mock.MagicMock()
    fakes = {"torch": torch, "torch.nn": torch.nn, "torch.nn.functional": torch.nn.functional}
    with mock.patch.dict(sys.modules, fakes), mock.patch.object(sys, "path", [str(HERE), *sys.path]):
        return importlib.import_module("programs").CASES


def answer(*arguments):
    """Returns the JSON that roofgap prints; None without a binary or an answer."""
    if "ROOFGAP" not in os.environ:
        return None
    done = subprocess.run([os.environ["ROOFGAP"], *arguments, "--format", "json"], capture_output=True, text=True)
    try:
        return json.loads(done.stdout)
    except ValueError:
        print(f"{' '.join(map(str, arguments))}: {done.stderr.strip()[-300:]}", file=sys.stderr)
        return None


def analysis_of(folder, name):
    run, metrics = folder / "runs" / name, folder / "metrics" / f"{name}.json"
    found = answer("analyze", run) if run.exists() else None
    return found or (json.loads(metrics.read_text()) if metrics.exists() else None)


def after(bad_ms, saves, is_step):
    """Returns the time after a remedy with its lowest and highest, ms; None where nothing is predicted. A saving of the whole trace, or of a loop
    that is not the step, is a share."""
    is_step = is_step and bad_ms / 2 < saves["of"] / 1e6 < 2 * bad_ms if saves else False
    now = saves and (saves["of"] / 1e6 if is_step else bad_ms)
    return saves and [now * (1 - saves[key] / 100) for key in ("pct", "high_pct", "low_pct")]


def tried_ms(answer):
    """Returns the time after a change given by hand, ms."""
    steps = [stage["step"] for stage in answer or [] if stage["step"]]
    return steps[0]["after_ns"] / 1e6 if steps else None


def compare(case, pair, analysis, tried):
    """Returns the row of a program. `tried` is the answer of what-if."""
    bad, good = pair["bad_ms"], pair["good_ms"]
    findings = analysis["findings"]
    is_about = lambda finding: any(fnmatch.fnmatch(finding["id"], wanted) for wanted in case.findings)
    about = next(filter(is_about, findings), None)
    saves = about and about.get("saves")
    stage = next((stage for stage in analysis["stages"] if about and stage["name"] == about["stage"]), None)
    steady = stage and stage.get("steady")
    predicted = after(bad, saves, bool(steady) and steady["unit"] == "step")
    row = {
        "bad_ms": bad,
        "good_ms": good,
        "saved_pct": 100 * (1 - good / bad),
        "first": findings[0]["id"] if findings else None,
        "is_first": bool(findings) and is_about(findings[0]),
        "step_ms": steady and steady.get("unprofiled_ns") and steady["unprofiled_ns"] / 1e6,
        "predicted": predicted,
        "how": saves and saves["how"],
        "tried": tried_ms(tried),
    }
    # Without a prediction the program is expected to stay as it is.
    expected = predicted or [bad] * 3
    row["error"] = abs(math.log(max(expected[0], 1e-6) / good))
    row["points"] = abs((saves["pct"] if saves else 0) - row["saved_pct"])
    row["is_covered"] = expected[1] <= good <= expected[2]
    return row


def goals(rows):
    """Returns the goals: a sentence, the value, the limit, and whether it holds."""
    share = lambda test: 100 * sum(map(test, rows)) / len(rows)
    error = statistics.median(row["error"] for row in rows)
    least = [
        ("log error below 0.25, %", share(lambda row: row["error"] < 0.25), 80),
        ("saving within 5 points, %", share(lambda row: row["points"] <= 5), 80),
        ("measured time in the interval, %", share(lambda row: row["is_covered"]), 85),
        ("first finding is about the cause, %", share(lambda row: row["is_first"]), 90),
    ]
    made = [("median log error of the time after", error, "at most 0.10", error <= 0.10)]
    return made + [(name, value, f"at least {limit}", value >= limit) for name, value, limit in least]


def ms(value):
    return MISSING if value is None else f"{value:#.3g}".rstrip(".")


def table(cases, rows, without, pair):
    between = lambda times: f"{ms(times[1])} to {ms(times[2])}" if times else MISSING
    lines = [
        "# Causes taken away",
        "",
        f"Programs with one planted cause, and the same programs without it, on one {pair['gpu']} with torch {pair['torch']}. Both ran in turn in one process,",
        f"not recorded: medians of {pair['repeats']} repeats, ms a step. The program with the cause was then profiled by the native collector. `step` is the unprofiled time",
        "of a step by its session, `after` what the first finding about the cause predicts, with the interval, ms.",
        "`what-if` is the same for a change given by hand. A program without a prediction counts as predicted to stay as it is. `tests/manual/pairs` has the programs.",
        "",
        "| program | cause | bad | good | saved, % | step | first finding | after | interval | how | what-if |",
        "|---|---|--:|--:|--:|--:|---|--:|---|---|--:|",
    ]
    for name, row in rows.items():
        first = f"`{row['first']}`{'' if row['is_first'] else ' (another cause)'}" if row["first"] else MISSING
        predicted, tried = row["predicted"] and row["predicted"][0], row["tried"]
        cells = [name, cases[name].cause, ms(row["bad_ms"]), ms(row["good_ms"]), f"{row['saved_pct']:.1f}", ms(row["step_ms"]), first]
        cells += [ms(predicted), between(row["predicted"]), row["how"] or MISSING, ms(tried)]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", f"Of {len(rows)} programs:", "", "| | value | goal |", "|---|--:|---|"]
    lines += [f"| {name} | {value:.3g} | {limit}{'' if holds else ': missed'} |" for name, value, limit, holds in goals(rows.values())]
    if without:
        lines += ["", "Not compared: " + "; ".join(f"{name} ({why})" for name, why in without.items()) + "."]
    return "\n".join(lines) + "\n"


def main(out, target=None):
    cases, rows, without, pair = known_cases(), {}, {}, None
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for archive in sorted(pathlib.Path(out).rglob("*.tar.xz")):
            with tarfile.open(archive) as files:
                files.extractall(folder, filter="data")
        lines = [line for path in sorted(pathlib.Path(out).rglob("pairs.jsonl")) for line in path.read_text().splitlines()]
        pairs = {found["name"]: found for found in map(json.loads, lines)}
        for name, case in cases.items():
            found, analysis = pairs.get(name, {"error": "not timed"}), analysis_of(folder, name)
            if "error" in found or analysis is None:
                without[name] = found.get("error") or "not profiled"
                continue
            pair = found
            run = folder / "runs" / name
            tried = answer("what-if", run, case.edit) if case.edit and run.exists() else None
            rows[name] = compare(case, found, analysis, tried)
    if not rows:
        print(f"nothing to compare: {without}", file=sys.stderr)
        return 2
    text = table(cases, rows, without, pair)
    print(text)
    if target:
        pathlib.Path(target).write_text(text)
    return 0 if all(holds for *_, holds in goals(rows.values())) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) if len(sys.argv) in (2, 3) else __doc__)
