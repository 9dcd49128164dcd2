"""Tests of the pytest plugin, where pytest is installed."""

import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Stands in for the program: exceeds the limit where HEAD is called slow.
PROGRAM = """\
#!/bin/sh
case "$*" in
    *"-- base slow") echo "decode is 9 % slower"; exit 5 ;;
    *"-- base fast") exit 0 ;;
esac
echo "unexpected: $*" >&2
exit 2
"""

TESTS = """
import pytest

def test_fast(assert_no_regression):
    assert_no_regression("fast", decode="3%")

def test_slow(assert_no_regression):
    with pytest.raises(AssertionError, match="9 % slower"):
        assert_no_regression("slow", "base", decode="3%")
"""


@unittest.skipUnless(importlib.util.find_spec("pytest"), "pytest is not installed")
class Plugin(unittest.TestCase):
    def run_pytest(self, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "test_speed.py").write_text(textwrap.dedent(TESTS))
            program = folder / "bin" / "roofgap"
            program.parent.mkdir()
            program.write_text(PROGRAM)
            program.chmod(0o755)
            # A `pip install --target` of the package: the program is in bin beside it.
            (folder / "roofgap").symlink_to(ROOT / "python" / "roofgap")
            environment = {**os.environ, "PYTHONPATH": str(folder), "PATH": f"{program.parent}:{os.environ['PATH']}"}
            command = [sys.executable, "-B", "-m", "pytest", "-p", "roofgap.pytest_plugin", "-p", "no:cacheprovider", "-rs", *arguments]
            return subprocess.run(command, cwd=folder, env=environment, check=False, capture_output=True, text=True)

    def test_the_baseline_is_an_argument_or_an_option(self):
        done = self.run_pytest("--roofgap-baseline", "base")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("2 passed", done.stdout)

    def test_a_test_without_a_baseline_is_skipped(self):
        done = self.run_pytest()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("1 passed, 1 skipped", done.stdout)
        self.assertIn("--roofgap-baseline RUN", done.stdout)


if __name__ == "__main__":
    unittest.main()
