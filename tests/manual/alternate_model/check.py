#!/usr/bin/env python3
"""Checks that every report of a run names the model that ran (`check.py ANSWER`, with the output of `profile --format json`)."""

import json
import pathlib
import sys


def main():
    answer = json.loads(pathlib.Path(sys.argv[1]).read_text())
    files = {name: pathlib.Path(path) for name, path in answer["files"].items()}
    model = (json.loads(files["analysis"].read_text()).get("workload") or {}).get("model")
    print(f"run {answer['run_id']}: {answer['state']}; model {model}")
    wrong = [] if model else ["metrics.json names no model"]
    for name in ("summary", "report", "page"):
        # Markdown escapes some characters of a name.
        text = files[name].read_text().replace("\\", "") if name in files else ""
        if not model or model not in text:
            wrong.append(f"{name} does not name the model")
    for line in wrong:
        print(f"FAILED  {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
