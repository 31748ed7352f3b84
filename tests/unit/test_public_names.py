"""The names that `import sleeper` offers."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import sleeper


def test_all_is_exactly_what_is_public():
    """`__all__` is sorted, complete, and few enough to know (at most 30)."""
    names = {*vars(sleeper), *sleeper._LOADED_AT_FIRST_USE, "spark"}
    public = [
        name
        for name in names
        if not name.startswith("_")
        and (name == "spark" or getattr(getattr(sleeper, name), "__module__", "")[:7] == "sleeper")
    ]

    assert sorted(public) == sleeper.__all__
    assert len(sleeper.__all__) <= 30


@pytest.mark.parametrize("name", sleeper.__all__)
def test_every_name_is_documented(name):
    """The first sentence says what it is."""
    assert (inspect.getdoc(getattr(sleeper, name)) or "").strip()


@pytest.mark.parametrize("owner", [sleeper.Instance, sleeper.Table, sleeper.Rows])
def test_every_method_is_documented(owner):
    """So does every method and property of what a user holds."""
    silent = [
        name
        for name in vars(owner)
        if not name.startswith("_") and not inspect.isclass(member := getattr(owner, name))
        if callable(member) or isinstance(member, property)
        if not inspect.getdoc(member)
    ]

    assert silent == []


def test_every_error_can_be_caught_as_one():
    """All public errors are SleeperErrors; wrong arguments are ValueErrors too."""
    errors = [
        value
        for name in sleeper.__all__
        if inspect.isclass(value := getattr(sleeper, name)) and issubclass(value, Exception)
    ]

    assert len(errors) > 5
    assert all(issubclass(error, sleeper.SleeperError) for error in errors)
    assert issubclass(sleeper.BadRequest, ValueError)
    assert issubclass(sleeper.NotFound, LookupError)


def test_importing_configures_nothing():
    """No handler of logging, no thread; and what only some commands need is not imported."""
    code = """
import logging, sys, threading
import sleeper
assert logging.getLogger().handlers == [], logging.getLogger().handlers
assert threading.active_count() == 1
assert callable(sleeper.spark.register)
lazy = ("pandas", "pyspark", "datafusion", "duckdb", "click", "rich")
print([name for name in lazy if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": ":".join(filter(None, sys.path))},
    )

    assert done.stdout == "[]\n"
