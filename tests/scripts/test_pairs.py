"""Tests of tests/manual/pairs/check.py with made-up results: what it reads, compares and decides."""

import contextlib
import fnmatch
import importlib.util
import io
import json
import math
import os
import pathlib
import re
import tarfile
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("check", ROOT / "tests/manual/pairs/check.py")
check = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(check)

SAVES = {"ns": 1, "pct": 50.0, "low_pct": 40.0, "high_pct": 60.0, "of": 10_000_000, "how": "replayed"}


def analysis(*findings, unit="step"):
    """An analysis with these findings: ids and what they save."""
    stages = [{"name": "loop", "steady": {"unprofiled_ns": 9_900_000, "unit": unit}}]
    return {"stages": stages, "findings": [{"id": name, "stage": "loop", "saves": saves} for name, saves in findings]}


class Pairs(unittest.TestCase):
    def setUp(self):
        self.cases = check.known_cases()
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.enterContext(mock.patch.dict(os.environ))
        os.environ.pop("ROOFGAP", None)

    def row(self, *findings, good_ms=5.2):
        return check.compare(self.cases["eager_small"], {"bad_ms": 10.0, "good_ms": good_ms}, analysis(*findings), None)

    def test_programs_name_findings_and_changes_that_exist(self):
        texts = (ROOT / "crates/roofgap-analyze/texts/findings.md").read_text()
        known = re.findall(r"^## (.*)$", texts, re.MULTILINE)
        for name, case in self.cases.items():
            for wanted in case.findings:
                self.assertTrue(fnmatch.filter(known, wanted), f"{name}: {wanted}")

    def test_a_saving_of_the_whole_trace_is_a_share_of_the_measured_time(self):
        whole = analysis(("launch-bound", SAVES | {"of": 70_000_000}), unit="instance")
        row = check.compare(self.cases["eager_small"], {"bad_ms": 10.0, "good_ms": 5.2}, whole, None)
        self.assertEqual(row["predicted"], [5.0, 4.0, 6.0])

    def test_a_prediction_is_the_time_of_a_step(self):
        row = self.row(("host-gaps", None), ("launch-bound", SAVES))
        self.assertEqual((row["predicted"], row["is_first"], row["step_ms"]), ([5.0, 4.0, 6.0], False, 9.9))
        self.assertAlmostEqual(row["error"], math.log(5.2 / 5.0))
        self.assertAlmostEqual(row["points"], 2.0)
        self.assertTrue(row["is_covered"])
        self.assertFalse(self.row(("launch-bound", SAVES), good_ms=3.9)["is_covered"])

    def test_without_a_prediction_the_program_stays_as_it_is(self):
        for findings in [(), [("host-gaps", SAVES)], [("launch-bound", None)]]:
            row = self.row(*findings)
            self.assertEqual((row["predicted"], row["is_covered"]), (None, False))
            self.assertAlmostEqual(row["error"], math.log(10 / 5.2))

    def write(self, findings):
        """Writes results of two programs, one of which failed, and returns the status of the check and its table."""
        pair = {"name": "eager_small", "bad_ms": 10.0, "good_ms": 5.2, "repeats": 13, "gpu": "GPU", "torch": "2"}
        failed = {"name": "odd_width", "error": "out of memory"}
        (self.folder / "pairs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in (pair, failed)))
        metrics = json.dumps(analysis(*findings)).encode()
        with tarfile.open(self.folder / "metrics.tar.xz", "w:xz") as archive:
            for name in ("metrics/eager_small.json", "runs/eager_small/session.json"):
                entry = tarfile.TarInfo(name)
                entry.size = len(metrics)
                archive.addfile(entry, io.BytesIO(metrics))
        table = self.folder / "pairs.md"
        with contextlib.redirect_stdout(io.StringIO()):
            status = check.main(self.folder, table)
        return status, table.read_text()

    def test_metrics_of_the_session_decide_without_a_binary(self):
        status, table = self.write([("launch-bound", SAVES)])
        self.assertEqual(status, 0)
        wanted = "| 10.0 | 5.20 | 48.0 | 9.90 | `launch-bound` | 5.00 | 4.00 to 6.00 | replayed | – |"
        self.assertIn(f"| eager_small | {self.cases['eager_small'].cause} {wanted}", table)
        self.assertIn("odd_width (out of memory)", table)
        self.assertIn("upload_in_line (not timed)", table)
        status, table = self.write([])
        self.assertEqual(status, 1)
        self.assertIn("| first finding is about the cause, % | 0 | at least 90: missed |", table)

    def test_a_binary_analyses_the_run_again(self):
        script = self.folder / "roofgap"
        again, tried = analysis(("launch-bound", SAVES | {"pct": 47})), [{"stage": "loop", "step": {"after_ns": 5_200_000}}]
        script.write_text(
            '#!/bin/sh\n[ -f "$2/session.json" ] || exit 2\n'
            f"case \"$1 $3\" in\n'analyze --format') echo '{json.dumps(again)}' ;;\n"
            f"'what-if graph') echo '{json.dumps(tried)}' ;;\nesac\n"
        )
        script.chmod(0o755)
        os.environ["ROOFGAP"] = str(script)
        status, table = self.write([])
        self.assertEqual(status, 0)
        self.assertIn("| 5.30 | 4.00 to 6.00 | replayed | 5.20 |", table)


if __name__ == "__main__":
    unittest.main()
