"""A pytest plugin: the tests run on the copy of the package that they were given, or not at all.

A test that fails because a module cannot be imported, or a name in it does not exist, proves
nothing about the tests: such a run ends with `BROKEN`. The ids of tests that fail are written to
a file, one a line.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

BROKEN = 9
SOURCE = "SLEEPER_MUTANTS_SOURCE"
MODULE = "SLEEPER_MUTANTS_MODULE"
FAILED = "SLEEPER_MUTANTS_FAILED"


def pytest_configure() -> None:
    """Check where the package and the changed module would be imported from."""
    source = Path(os.environ[SOURCE])
    for name in ("sleeper", os.environ[MODULE]):
        spec = find_spec(name)
        found = "nowhere" if spec is None or spec.origin is None else spec.origin
        if not Path(found).is_relative_to(source):
            pytest.exit(f"{name} is imported from {found}, not from {source}", BROKEN)


def pytest_exception_interact(call: pytest.CallInfo[Any], report: object) -> None:
    """End the run when what failed is not a test."""
    no_test = isinstance(report, pytest.CollectReport)
    if call.excinfo is not None and (
        no_test or call.excinfo.errisinstance((ImportError, NameError, SyntaxError))
    ):
        pytest.exit(f"the copy does not run: {call.excinfo.exconly()}", BROKEN)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Write the id of a test that fails."""
    if report.failed:
        with Path(os.environ[FAILED]).open("a") as file:
            file.write(f"{report.nodeid}\n")
