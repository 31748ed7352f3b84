"""Examples in docstrings print what they say, as those of pages do."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pyarrow as pa

import sleeper

SOURCES = Path(sleeper.__file__).parent
SHOWN = {
    "sleeper": "a table of flights that the reader has",
    "sleeper.html.progress.progress_bar": "a table and a file that the reader has",
}
"""Examples that are not run, by the name of what they are of, and what they need."""


def examples() -> list[doctest.DocTest]:
    """The examples of every module that has any."""
    found: list[doctest.DocTest] = []
    for path in sorted(SOURCES.rglob("*.py")):
        if ">>> " in path.read_text():
            parts = path.relative_to(SOURCES.parent).with_suffix("").parts
            module = importlib.import_module(".".join(parts).removesuffix(".__init__"))
            tests = doctest.DocTestFinder(exclude_empty=True).find(module)
            found += [test for test in tests if test.examples]
    return found


def test_examples_in_docstrings_print_what_they_say() -> None:
    """Given every example below src but the listed ones, when it is run, then its output is shown."""
    tests = {test.name: test for test in examples()}
    told: list[str] = []
    runner = doctest.DocTestRunner(verbose=False)
    for name in sorted(tests.keys() - SHOWN.keys()):
        tests[name].globs |= {"pa": pa, "sleeper": sleeper}
        runner.run(tests[name], out=told.append)

    assert len(tests) > 50
    assert tests.keys() >= SHOWN.keys(), "these have no example any more: take them out of SHOWN"
    assert "".join(told) == ""
