"""A plugin for pytest: the fixture `assert_no_regression`.

    def test_speed(assert_no_regression):
        assert_no_regression("runs/head/latest", decode="3%")

The baseline is the second argument, or the one of `pytest --roofgap-baseline RUN`.
"""

from __future__ import annotations

import os
from typing import Any, Callable, Union

import pytest

from ._regression import assert_no_regression as compare

Path = Union[str, "os.PathLike[str]"]


def pytest_addoption(parser: Any) -> None:
    group = parser.getgroup("roofgap")
    group.addoption("--roofgap-baseline", metavar="RUN", help="run or capture that assert_no_regression compares with")


@pytest.fixture
def assert_no_regression(request: Any) -> Callable[..., None]:
    """Returns `roofgap.assert_no_regression`; a test without a baseline is skipped."""

    def check(head: Path, baseline: Path | None = None, *limits: str, **stage_limits: str) -> None:
        __tracebackhide__ = True
        baseline = baseline or request.config.getoption("--roofgap-baseline")
        if baseline is None:
            pytest.skip("no baseline; name one with --roofgap-baseline RUN")
        compare(head, baseline, *limits, **stage_limits)

    return check
