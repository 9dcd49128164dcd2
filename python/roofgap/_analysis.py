"""Analyses of captures and runs as Python values."""

from __future__ import annotations

import json
import os
import pathlib
import tempfile
import warnings
from typing import Any, Union

from ._binary import DONE, PARTIAL, RoofgapError, run

Path = Union[str, "os.PathLike[str]"]


def analyze(
    path: Path,
    *more: Path,
    model: Path | None = None,
    prompt_tokens: int | None = None,
    new_tokens: int | None = None,
    stages: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Analyses a capture, captures that belong together, or a run directory.

    Returns the document that `roofgap schema` describes. Something unavailable is a warning; a failure raises RoofgapError.
    """
    options = _options(model, prompt_tokens, new_tokens, stages)
    analysis: dict[str, Any] = json.loads(_answer("analyze", "--format=json", *options, paths=[path, *more]))
    return analysis


def load_kernels(path: Path, *more: Path, events: bool = False, library: str | None = None) -> Any:
    """Returns the kernels of a capture as a data frame: a row per kernel, or per launch if `events` is true.

    For events each path is a run of its own, and ranks of one job are in a folder. `library` is "pandas" or "polars"; by default the one that is installed, pandas first. pandas needs pyarrow for events.
    """
    frames = frame_library(library, "load_kernels")
    if not events:
        return frames.DataFrame([_flat(row) for row in analyze(path, *more)["kernels"]])
    with tempfile.TemporaryDirectory(prefix="roofgap-") as folder:
        _answer("export", "parquet", "--events", f"--to={folder}", paths=[path, *more])
        tables = sorted(pathlib.Path(folder).glob("launches/*/*.parquet"))
        return frames.concat([frames.read_parquet(table) for table in tables])


def _options(model: Path | None, prompt_tokens: int | None, new_tokens: int | None, stages: dict[str, str] | None) -> list[str]:
    named = {
        "--model": None if model is None else os.fspath(model),
        "--set=workload.prompt_tokens": prompt_tokens,
        "--set=workload.tokens": new_tokens,
    }
    options = [f"{name}={value}" for name, value in named.items() if value is not None]
    return options + [f"--stage={name}={pattern}" for name, pattern in (stages or {}).items()]


def _answer(*arguments: str, paths: list[Path]) -> str:
    done = run([*arguments, "--", *(os.fspath(path) for path in paths)])
    if done.returncode not in (DONE, PARTIAL):
        raise RoofgapError(done.returncode, done.stderr.strip())
    if done.stderr.strip():
        warnings.warn(done.stderr.strip(), stacklevel=3)
    return done.stdout


def _flat(row: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns a row without nested objects: their fields become columns `object.field`."""
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dict):
            flat.update(_flat(value, f"{prefix}{name}."))
        else:
            flat[prefix + name] = value
    return flat


def frame_library(name: str | None, caller: str) -> Any:
    """Returns the module pandas or polars: the one of the name, else the one that is installed, pandas first."""
    import importlib

    if name not in (None, "pandas", "polars"):
        raise ValueError(f"unknown library {name!r}; use 'pandas' or 'polars'")
    for candidate in [name] if name else ["pandas", "polars"]:
        try:
            return importlib.import_module(candidate)
        except ImportError:
            continue
    wanted = name or "pandas or polars"
    raise ImportError(f"roofgap's {caller} needs {wanted}; install one of them")
