"""The command-line program that the wheel installs, and its errors."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig

# Exit statuses that come with an answer: done, and something requested was unavailable.
DONE, PARTIAL, LIMIT_EXCEEDED = 0, 3, 5


class RoofgapError(RuntimeError):
    """A failed command. `status` is its exit status, as in the table of the README."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message or f"roofgap ended with status {status}")
        self.status = status


def find_binary() -> str:
    """Returns the path of the program: the one of this installation, else one on the PATH."""
    name = "roofgap" + (sysconfig.get_config_var("EXE") or "")
    folders = [sysconfig.get_path("scripts"), os.path.dirname(sys.executable)]
    user_scheme = f"{os.name}_user"
    if user_scheme in sysconfig.get_scheme_names():
        folders.append(sysconfig.get_path("scripts", scheme=user_scheme))
    # `pip install --target DIR` puts programs into DIR/bin.
    folders.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "bin"))
    for folder in folders:
        path = os.path.join(folder, name)
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    found = shutil.which(name)
    if found is None:
        raise FileNotFoundError(f"no program {name} in {', '.join(folders)} or on the PATH; install it with `pip install roofgap`")
    return found


def run(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """Runs the program and returns its output, whatever its status is."""
    command = [find_binary(), "--quiet", *arguments]
    return subprocess.run(command, check=False, capture_output=True, stdin=subprocess.DEVNULL, encoding="utf-8")
