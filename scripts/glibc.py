#!/usr/bin/env python3
"""Checks that programs and libraries run with an old glibc, by the versions of the symbols that they need.

    scripts/glibc.py [--newest 2.28] [--parts 2] FILE...

A wheel or another zip archive stands for the ELF files in it. Needs readelf. The status is 1 if a file needs a newer glibc or a symbol
without a version, or has fewer parts: the program and the native collector inside it.
"""

import argparse
import io
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

ELF = b"\x7fELF"
# 64 bits, little endian, version 1, System V: the first bytes of a file on x86-64 and aarch64.
HEAD = ELF + b"\x02\x01\x01\x00"


def version(text):
    return tuple(int(part) for part in text.split("."))


def needed(symbols):
    """Returns the versions of glibc in the output of `readelf --version-info`."""
    return {match for match in re.findall(r"Name: GLIBC_([0-9.]+)", symbols)}


def too_new(versions, newest):
    """Returns the versions above a limit, in order."""
    return sorted((one for one in versions if version(one) > version(newest)), key=version)


def unversioned(symbols):
    """Returns the symbols without a version in the output of `readelf --dyn-syms`.

    glibc gives all of its symbols versions. A library that is linked against a glibc that lacks a symbol has it without one.
    """
    return re.findall(r"GLOBAL +\w+ +UND ([^@\s]+)$", symbols, re.MULTILINE)


def needs(content):
    """Returns the versions of glibc and the symbols without a version that an ELF file needs."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        command = ["readelf", "--wide", "--version-info", "--dyn-syms", file.name]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    return needed(done.stdout), unversioned(done.stdout)


def parts(name, content):
    """Yields an ELF file and those inside it: the native collector is a part of the program."""
    at = 0
    while at != -1:
        yield (name if at == 0 else f"{name}: library at byte {at}"), content[at:]
        at = content.find(HEAD, at + 1)


def elf_files(path):
    """Yields the name and content of each ELF file of a path."""
    content = pathlib.Path(path).read_bytes()
    if zipfile.is_zipfile(io.BytesIO(content)) and not content.startswith(ELF):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for name in archive.namelist():
                inside = archive.read(name)
                if inside.startswith(ELF):
                    yield from parts(f"{path}: {name}", inside)
    elif content.startswith(ELF):
        yield from parts(str(path), content)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--newest", default="2.28", help="newest glibc that a file may need")
    parser.add_argument("--parts", type=int, default=1, help="least number of programs and libraries in a file")
    parser.add_argument("files", nargs="+")
    arguments = parser.parse_args()
    failed = False
    for path in arguments.files:
        found = list(elf_files(path))
        if len(found) < arguments.parts:
            print(f"{path}: {len(found)} programs and libraries in it, not {arguments.parts}")
            failed = True
        for name, content in found:
            versions, unknown = needs(content)
            new = too_new(versions, arguments.newest)
            failed = failed or bool(new or unknown)
            newest = max(versions, key=version, default="none")
            print(f"{name}: needs glibc {newest}" + (f", which is newer than {arguments.newest}" if new else ""))
            if unknown:
                print(f"{name}: needs symbols without a version: {', '.join(unknown)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
