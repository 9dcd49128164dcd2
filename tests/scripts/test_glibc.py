"""Tests of scripts/glibc.py."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts/glibc.py"
sys.path.insert(0, str(ROOT / "scripts"))

import glibc  # noqa: E402

SYMBOLS = """
Version needs section '.gnu.version_r' contains 2 entries:
  0x0010:   Name: GLIBC_2.2.5  Flags: none  Version: 5
  0x0020:   Name: GLIBC_2.34  Flags: none  Version: 6
  0x0030:   Name: GCC_3.0  Flags: none  Version: 7
"""
DYNAMIC = """
Symbol table '.dynsym' contains 4 entries:
   Num:    Value          Size Type    Bind   Vis      Ndx Name
     0: 0000000000000000     0 NOTYPE  LOCAL  DEFAULT  UND 
     1: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND bcmp@GLIBC_2.2.5 (2)
     2: 0000000000000000     0 NOTYPE  WEAK   DEFAULT  UND __gmon_start__
     3: 0000000000000000     0 NOTYPE  GLOBAL DEFAULT  UND gettid
     4: 00000000000c1a60   120 FUNC    GLOBAL DEFAULT   14 InitializeInjection
"""


class Versions(unittest.TestCase):
    def test_versions_are_compared_as_numbers(self):
        self.assertEqual(glibc.needed(SYMBOLS), {"2.2.5", "2.34"})
        self.assertEqual(glibc.too_new({"2.2.5", "2.9", "2.28"}, "2.28"), [])
        self.assertEqual(glibc.too_new({"2.34", "2.29", "2.4"}, "2.28"), ["2.29", "2.34"])

    def test_only_a_needed_symbol_without_a_version_is_unknown(self):
        self.assertEqual(glibc.unversioned(DYNAMIC), ["gettid"])

    def test_a_library_inside_a_program_is_a_part(self):
        program = glibc.HEAD + b"code \x7fELF is a text" + glibc.HEAD + b"library"
        names = [name for name, _ in glibc.parts("x", program)]
        self.assertEqual(names, ["x", f"x: library at byte {program.rindex(glibc.HEAD)}"])


@unittest.skipUnless(shutil.which("readelf"), "readelf is not installed")
class Files(unittest.TestCase):
    def run_on(self, *arguments):
        return subprocess.run([sys.executable, SCRIPT, *arguments], check=False, capture_output=True, text=True)

    def test_a_program_of_this_machine_needs_some_glibc(self):
        program = shutil.which("env")
        self.assertEqual(self.run_on("--newest", "9.9", program).returncode, 0)
        old = self.run_on("--newest", "2.1", program)
        self.assertEqual(old.returncode, 1)
        self.assertIn("which is newer than 2.1", old.stdout)

    def test_files_of_a_wheel_are_checked(self):
        with tempfile.TemporaryDirectory() as folder:
            wheel = pathlib.Path(folder) / "x.whl"
            with zipfile.ZipFile(wheel, "w") as archive:
                archive.writestr("x/__init__.py", "")
            self.assertEqual(self.run_on(wheel).returncode, 1)
            with zipfile.ZipFile(wheel, "a") as archive:
                archive.write(shutil.which("env"), "x/scripts/program")
            done = self.run_on("--newest", "9.9", wheel)
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertIn("x/scripts/program: needs glibc", done.stdout)
            lone = self.run_on("--newest", "9.9", "--parts", "2", wheel)
            self.assertEqual(lone.returncode, 1)
            self.assertIn("1 programs and libraries in it, not 2", lone.stdout)


if __name__ == "__main__":
    unittest.main()
