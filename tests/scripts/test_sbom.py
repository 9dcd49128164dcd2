"""Tests of scripts/sbom.py."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import sbom  # noqa: E402


def package(name, version="1.0.0", license="MIT"):
    return {"id": name, "name": name, "version": version, "license": license, "repository": f"https://example.org/{name}"}


def node(name, **kinds):
    deps = [{"pkg": other, "dep_kinds": [{"kind": kind}]} for other, kind in kinds.items()]
    return {"id": name, "deps": deps}


METADATA = {
    "packages": [
        package("app", license="Apache-2.0 OR MIT"),
        package("used", license="MIT/Apache-2.0"),
        package("deep"),
        package("generator"),
        package("for_tests"),
        package("elsewhere"),
    ],
    "workspace_members": ["app"],
    "resolve": {
        "nodes": [
            node("app", used=None, generator="build", for_tests="dev"),
            node("used", deep=None),
            node("deep", used="dev"),
            node("generator"),
            node("for_tests", elsewhere=None),
            node("elsewhere"),
        ]
    },
}

LOCK = """
[[package]]
name = "app"
version = "1.0.0"

[[package]]
name = "used"
version = "1.0.0"
checksum = "00ff"
dependencies = [
 "deep",
]

[[package]]
name = "used"
version = "0.9.0"
checksum = "11ee"
"""


class Sbom(unittest.TestCase):
    def setUp(self):
        self.document = sbom.sbom(METADATA, LOCK, "app")
        self.parts = {part["name"]: part for part in self.document["components"]}

    def test_lists_what_the_binary_is_built_from(self):
        self.assertEqual(list(self.parts), ["deep", "generator", "used"])
        self.assertEqual(self.document["metadata"]["component"]["name"], "app")
        self.assertEqual(self.document["metadata"]["component"]["type"], "application")

    def test_names_licence_checksum_and_origin(self):
        used = self.parts["used"]
        self.assertEqual(used["licenses"], [{"expression": "MIT OR Apache-2.0"}])
        self.assertEqual(used["hashes"], [{"alg": "SHA-256", "content": "00ff"}])
        self.assertEqual(used["purl"], "pkg:cargo/used@1.0.0")
        self.assertNotIn("hashes", self.parts["deep"])

    def test_every_reference_is_a_component(self):
        references = {part["bom-ref"] for part in self.document["components"]} | {"app@1.0.0"}
        for entry in self.document["dependencies"]:
            self.assertIn(entry["ref"], references)
            self.assertLessEqual(set(entry["dependsOn"]), references)
        by_ref = {entry["ref"]: entry["dependsOn"] for entry in self.document["dependencies"]}
        self.assertEqual(by_ref["app@1.0.0"], ["generator@1.0.0", "used@1.0.0"])

    def test_the_same_input_gives_the_same_document(self):
        self.assertEqual(self.document, sbom.sbom(METADATA, LOCK, "app"))
        self.assertRegex(self.document["serialNumber"], "^urn:uuid:[0-9a-f-]{36}$")
        other = sbom.sbom(METADATA, LOCK.replace("00ff", "00fe"), "app")
        self.assertNotEqual(self.document["serialNumber"], other["serialNumber"])

    def test_an_unknown_root_is_an_error(self):
        with self.assertRaisesRegex(ValueError, "no package other"):
            sbom.sbom(METADATA, LOCK, "other")

    def test_runs_as_a_command(self):
        with tempfile.TemporaryDirectory() as folder:
            lock = pathlib.Path(folder) / "Cargo.lock"
            lock.write_text(LOCK, encoding="utf-8")
            command = [sys.executable, str(ROOT / "scripts/sbom.py"), "--root", "app", "--lock", str(lock)]
            output = subprocess.run(command, input=json.dumps(METADATA), capture_output=True, text=True, check=True)
        self.assertEqual(json.loads(output.stdout), self.document)


if __name__ == "__main__":
    unittest.main()
