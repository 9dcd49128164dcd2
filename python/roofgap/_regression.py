"""A comparison of two runs as an assertion."""

from __future__ import annotations

import os
from typing import Union

from ._binary import DONE, LIMIT_EXCEEDED, RoofgapError, run

Path = Union[str, "os.PathLike[str]"]

DEFAULT_LIMIT = "5%"


def assert_no_regression(head: Path, baseline: Path, *limits: str, **stage_limits: str) -> None:
    """Raises AssertionError if `head` is worse than `baseline` by more than a limit and by more than its noise.

    Both are runs, analyses (metrics.json) or captures. Limits are those of `roofgap compare --fail-on`: `"5%"`, `"decode.wall=3%"`, or by
    name, `decode="3%"`. A number that was not measured raises RoofgapError, because nothing was checked then.
    """
    __tracebackhide__ = True
    wanted = [*limits, *(f"{stage}={limit}" for stage, limit in stage_limits.items())] or [DEFAULT_LIMIT]
    gates = [f"--fail-on={limit}" for limit in wanted]
    done = run(["compare", *gates, "--", os.fspath(baseline), os.fspath(head)])
    if done.returncode == LIMIT_EXCEEDED:
        raise AssertionError(f"slower than {os.fspath(baseline)}:\n{done.stdout}")
    if done.returncode != DONE:
        raise RoofgapError(done.returncode, done.stderr.strip() or done.stdout.strip())
