#!/usr/bin/env python3
"""Writes a software bill of materials of the binary as CycloneDX JSON.

    cargo metadata --format-version 1 --locked --filter-platform TARGET | scripts/sbom.py [--root roofgap] [--lock Cargo.lock] > sbom.json

Lists the crates that the binary is built from; crates for tests and benchmarks only are left out. The same input gives the same bytes.
"""

import argparse
import hashlib
import json
import re
import sys
import uuid


def checksums(lock):
    """Returns the SHA-256 of each crate in a Cargo.lock, by name and version."""
    found = {}
    for block in lock.split("[[package]]")[1:]:
        fields = dict(re.findall(r'^(name|version|checksum) = "(.*)"$', block, re.MULTILINE))
        if "checksum" in fields:
            found[fields["name"], fields["version"]] = fields["checksum"]
    return found


def built_from(metadata, root):
    """Returns the ids of all packages that `root` is built from, and the dependencies of each."""
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    names = {package["id"]: package["name"] for package in metadata["packages"]}
    roots = [member for member in metadata["workspace_members"] if names[member] == root]
    if not roots:
        raise ValueError(f"no package {root} in the workspace")

    def is_linked(dependency):
        return any(kind["kind"] != "dev" for kind in dependency["dep_kinds"])

    edges, todo = {}, [roots[0]]
    while todo:
        at = todo.pop()
        if at not in edges:
            edges[at] = sorted({dep["pkg"] for dep in nodes[at]["deps"] if is_linked(dep)})
            todo.extend(edges[at])
    return roots[0], edges


def component(package, sums, kind="library"):
    """Describes a package."""
    name, version = package["name"], package["version"]
    found = {
        "type": kind,
        "bom-ref": reference(package),
        "name": name,
        "version": version,
        "purl": f"pkg:cargo/{name}@{version}",
    }
    if package.get("license"):
        # The old form of crates.io separates alternatives by a slash.
        found["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    if (name, version) in sums:
        found["hashes"] = [{"alg": "SHA-256", "content": sums[name, version]}]
    if package.get("repository"):
        found["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return found


def reference(package):
    return f"{package['name']}@{package['version']}"


def sbom(metadata, lock, root):
    """Returns the bill of materials."""
    packages = {package["id"]: package for package in metadata["packages"]}
    top, edges = built_from(metadata, root)
    sums = checksums(lock)
    parts = sorted((packages[at] for at in edges if at != top), key=lambda p: (p["name"], p["version"]))
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": component(packages[top], sums, "application")},
        "components": [component(package, sums) for package in parts],
        "dependencies": [
            {
                "ref": reference(packages[at]),
                "dependsOn": sorted(reference(packages[to]) for to in edges[at]),
            }
            for at in sorted(edges, key=lambda at: reference(packages[at]))
        ],
    }
    digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
    document["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, digest)}"
    return document


def main():
    parser = argparse.ArgumentParser(description="Writes a CycloneDX bill of materials.")
    parser.add_argument("--root", default="roofgap", help="package of the binary")
    parser.add_argument("--lock", default="Cargo.lock", help="lock file with the checksums")
    options = parser.parse_args()
    with open(options.lock, encoding="utf-8") as file:
        lock = file.read()
    json.dump(sbom(json.load(sys.stdin), lock, options.root), sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
