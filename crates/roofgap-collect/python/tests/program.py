"""A test that runs a Python program under the annotation."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, FOLDER)

from tests.fakes import write_packages  # noqa: E402

ANNOTATE = os.path.join(FOLDER, "annotate")


class ProgramCase(unittest.TestCase):
    """Runs programs with stand-ins for the packages they import."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.packages = os.path.join(self.folder, "packages")
        write_packages(self.packages)
        self.log = os.path.join(self.folder, "nvtx.log")
        self.account_path = os.path.join(self.folder, "workload.json")

    def run_program(self, program, path=(), **environment):
        """Runs a program under the annotation; what it wrote to NVTX is left in `ranges`, its account in `account`."""
        environment = {
            "PATH": os.environ.get("PATH", ""),
            "PYTHONPATH": os.pathsep.join([ANNOTATE, *path, self.packages]),
            "ROOFGAP_WORKLOAD_JSON": self.account_path,
            "ROOFGAP_ANNOTATE_DEBUG": "1",
            "FAKE_NVTX_LOG": self.log,
            **environment,
        }
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=False)
        self.ranges, self.account = "", None
        if os.path.exists(self.log):
            with open(self.log, encoding="utf-8") as file:
                self.ranges = " ".join(file.read().split("\n")).strip()
        if os.path.exists(self.account_path):
            with open(self.account_path, encoding="utf-8") as file:
                self.account = json.load(file)
        return done
