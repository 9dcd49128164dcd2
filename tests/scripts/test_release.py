"""Tests of scripts/release.sh: a folder with other files than those of a release is left alone."""

import hashlib
import pathlib
import subprocess
import tempfile
import unittest

RELEASE = pathlib.Path(__file__).parents[2] / "scripts" / "release.sh"


class Release(unittest.TestCase):
    def refused(self, files):
        """Runs the script on a folder with these files, and returns what it says."""
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                pathlib.Path(folder, name).write_text(text)
            done = subprocess.run([RELEASE, folder], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 1, done.stderr)
            left = {path.name: path.read_text() for path in pathlib.Path(folder).iterdir()}
            self.assertEqual(left, files)
            return done.stderr

    def test_checksums_of_something_else(self):
        sums = f"{hashlib.sha256(b'disk').hexdigest()}  disk.iso\n"
        said = self.refused({"disk.iso": "disk", "SHA256SUMS": sums})
        self.assertRegex(said, "not of a release: .*disk.iso")

    def test_another_file_beside_a_release(self):
        sums = f"{hashlib.sha256(b'').hexdigest()}  roofgap-1.tar.gz\n"
        said = self.refused({"roofgap-1.tar.gz": "", "SHA256SUMS": sums, "notes.txt": "mine"})
        self.assertIn("not of a release: notes.txt", said)


if __name__ == "__main__":
    unittest.main()
