#!/usr/bin/env python3
"""Checks what run.sh has left: planted causes, the cost of sampling, functions beside those of a trace.

usage: check.py planted|functions OUT, check.py pairs OUT stacks|counters, check.py counted OUT
"""

import ast
import datetime
import functools
import json
import pathlib
import random
import statistics
import sys
from importlib import util

HERE = pathlib.Path(__file__).parent
STEP_NS = 2_000_000
KINDS = {
    "sleep": "sleep",
    "item": "hidden_sync",
    "lock": "lock",
    "collect": "garbage_collection",
    "tokenizer": "tokenizer",
    "neighbour": "descheduled",
}


def windows(out, name):
    """Run and options of each capture."""
    path = out / f"{name}.windows"
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def window(run):
    """Start and end of the window of a run, ns since the epoch."""
    record = json.loads((pathlib.Path(run) / "session.json").read_text())
    phase = next(phase for phase in record["phases"] if phase["name"] == "timeline")
    return [int(datetime.datetime.fromisoformat(phase[key]).timestamp() * 1e9) for key in ("started", "finished")]


def decode(run):
    metrics = json.loads((pathlib.Path(run) / "metrics.json").read_text())
    return next(stage for stage in metrics["stages"] if stage["name"] == "decode")


def planted(out):
    lines = (HERE / "planted.py").read_text().splitlines()
    named = {cause: 1 + next(at for at, line in enumerate(lines) if line.endswith(f"# planted: {cause}")) for cause in KINDS}
    table, good, all_runs = {}, 0, 0
    for cause, kind in KINDS.items():
        if not (out / f"{cause}.log").exists():
            continue
        steps = [json.loads(line) for line in (out / f"{cause}.log").read_text().splitlines() if line.endswith("}")]
        table[cause] = []
        for run, *_ in windows(out, cause):
            all_runs += 1
            try:
                stage, (began, ended) = decode(run), window(run)
            except (OSError, StopIteration, IndexError) as error:
                table[cause].append({"failed": repr(error)})
                continue
            own = [step for step in steps if began <= step["at"] <= ended]
            mean = {key: statistics.fmean(step[key] for step in own) for key in ("ns", "waited_ns")}
            # In a cause that uses the GPU, the GPU is not idle all of the time.
            busy_ns = (stage["busy_ns"] or 0) if cause == "item" else 0
            count = (stage.get("steps") or {}).get("count") or stage["instances"]
            truth_ns = mean["ns"] * count - busy_ns
            first = (stage.get("host") or [{}])[0]
            row = {
                "line": f"{first.get('file')}:{first.get('line')}",
                "right_line": (first.get("file") or "").endswith("planted.py") and first.get("line") == named[cause],
                "kind": first.get("kind"),
                "mostly": first.get("mostly"),
                "steps": count,
                "planted_ns": truth_ns,
                "found_ns": first.get("self_ns"),
                "samples": first.get("samples"),
                "waited_ns": mean["waited_ns"] * count,
                "host_idle": stage.get("host_idle"),
            }
            row["ratio"] = row["found_ns"] / truth_ns if first and truth_ns else None
            row["right_time"] = bool(first) and abs(row["found_ns"] - truth_ns) <= 0.05 * truth_ns + STEP_NS
            row["right_kind"] = row["kind"] == kind
            idle = stage.get("host_idle") or {}
            parts = sum(function["self_ns"] for function in stage.get("host", [])) + idle.get("others_ns", 0) + idle.get("unknown_ns", 0)
            row["adds_up"] = parts == idle.get("idle_ns")
            good += row["right_line"] and row["right_time"] and row["adds_up"]
            table[cause].append(row)
        rows = [row for row in table[cause] if "failed" not in row]
        held = {key: sum(bool(row[key]) for row in rows) for key in ("right_line", "right_time", "right_kind", "adds_up")}
        ratios = sorted(row["ratio"] for row in rows if row["ratio"])
        span = f"{ratios[0]:.3f} {statistics.median(ratios):.3f} {ratios[-1]:.3f}" if ratios else "none"
        kinds = sorted({str(row["kind"]) for row in rows})
        print(f"{cause:13} {len(table[cause])} runs, {held}, found to planted: {span}, kinds {kinds}")
        for row in rows:
            if not (row["right_line"] and row["right_time"]):
                print("          ", json.dumps({key: row[key] for key in ("line", "ratio", "samples", "steps", "host_idle")}))
        if cause == "neighbour" and rows:
            shares = [(row["mostly"] or {}).get("ns", 0) / row["waited_ns"] for row in rows if row["waited_ns"]]
            print(f"           not running by samples to schedstat: {min(shares, default=0):.3f} to {max(shares, default=0):.3f}")
    (out / "planted.json").write_text(json.dumps(table, indent=1))
    print(f"planted: {good} of {all_runs} runs name the line and its time")
    return good == all_runs and all_runs > 0


def pairs(out, what):
    at = [int(line) for line in (out / "decode.log").read_text().splitlines() if line.isdigit()]
    steps = [(start, end - start) for start, end in zip(at, at[1:])]
    sides = []
    for run, *rest in windows(out, f"pairs-{what}"):
        began = window(run)[0]
        own = [ns for start, ns in steps if 0 <= start - began <= 950_000_000]
        sides.append((f"--{what}" in rest, statistics.median(own) if own else None))
    ratios = []
    for (first, one), (second, other) in zip(sides[::2], sides[1::2]):
        if one and other and first != second:
            ratios.append(one / other if first else other / one)
    if not ratios:
        print(f"{what} in pairs: none")
        return False
    draw = random.Random(1)
    means = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(4000))
    result = {"median": statistics.median(ratios), "interval": [means[100], means[-101]], "pairs": ratios, "step_ns": statistics.median(ns for _, ns in steps)}
    (out / f"pairs-{what}.json").write_text(json.dumps(result, indent=1))
    print(f"{what} in pairs: sampled to not sampled {result['median']:.4f} ({means[100]:.4f} to {means[-101]:.4f}), {len(ratios)} pairs, step {result['step_ns'] / 1e6:.2f} ms")
    return result["median"] <= 1.01


def counted(out):
    run = windows(out, "counted")[-1][0]
    record = json.loads((pathlib.Path(run) / "session.json").read_text())
    stage = decode(run)
    print("counted:", json.dumps({"mbu_measured": stage.get("mbu_measured"), "notes": [phase["notes"] for phase in record["phases"] if phase["notes"]]}))
    return bool(stage.get("mbu_measured"))


@functools.cache
def scopes(file):
    """Functions of a source file as (first line, last line, name with classes)."""
    package = file.split("/")[0]
    found = util.find_spec(package) if package.isidentifier() else None
    path = pathlib.Path(found.origin).parent.parent / file if found and found.origin else HERE / pathlib.Path(file).name
    if not path.exists():
        return []
    list_of = []

    def walk(node, around):
        for child in ast.iter_child_nodes(node):
            name = around
            if isinstance(child, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
                name = f"{around}.{child.name}".lstrip(".")
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                first = min([child.lineno, *(each.lineno for each in child.decorator_list)])
                list_of.append((first, child.end_lineno, name))
            walk(child, name)

    walk(ast.parse(path.read_text(encoding="utf-8")), "")
    return list_of


def key(row):
    file = row.get("file") or ""
    file = file[file.rfind("site-packages/") + len("site-packages/") :] if "site-packages/" in file else file
    inside = [scope for scope in scopes(file) if scope[0] <= (row.get("line") or 0) <= scope[1]]
    # The innermost one begins last.
    return f"{file}:{max(inside)[2] if inside else row['function']}"


def by_function(stage):
    sums = {}
    for row in stage.get("host", []):
        sums[key(row)] = sums.get(key(row), 0) + row["self_ns"]
    return sums


def ranks(values):
    order = sorted(range(len(values)), key=lambda at: -values[at])
    found = [0.0] * len(values)
    for rank, at in enumerate(order):
        found[at] = rank
    return found


def functions(out):
    sampled = by_function(decode(windows(out, "watched")[-1][0]))
    metrics = json.loads((out / "trace-metrics.json").read_text())
    exact = by_function(max(metrics["stages"], key=lambda stage: (stage["name"] == "decode", (stage.get("host_idle") or {}).get("idle_ns", 0))))
    share = lambda sums: {name: 100 * ns / max(1, sum(sums.values())) for name, ns in sums.items()}  # noqa: E731
    sampled, exact = share(sampled), share(exact)
    top = sorted(exact, key=lambda name: -exact[name])[:10]
    print("functions: share of the idle time of decode by the trace and by samples, %")
    for name in top:
        print(f"    {exact[name]:6.2f} {sampled.get(name, 0):6.2f}  {name}")
    for name in [name for name in sorted(sampled, key=lambda name: -sampled[name])[:10] if name not in top]:
        print(f"    {exact.get(name, 0):6.2f} {sampled[name]:6.2f}  {name}")
    one, other = ranks([exact[name] for name in top]), ranks([sampled.get(name, 0) for name in top])
    count = len(top)
    rho = 1 - 6 * sum((a - b) ** 2 for a, b in zip(one, other)) / (count * (count**2 - 1)) if count > 2 else 0
    (out / "functions.json").write_text(json.dumps({"rank_correlation": rho, "trace": exact, "samples": sampled}, indent=1))
    print(f"functions: rank correlation over the top {count} of the trace: {rho:.3f}")
    return rho > 0.9


if __name__ == "__main__":
    check = {"planted": planted, "pairs": pairs, "functions": functions, "counted": counted}[sys.argv[1]]
    sys.exit(0 if check(pathlib.Path(sys.argv[2]), *sys.argv[3:]) else 1)
