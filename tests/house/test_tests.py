"""Tests are read as documentation, so they say what they prove, and prove something."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEST_FILES = sorted((ROOT / "tests").rglob("*.py"))
DIFFERENCES_OF_SERVERS = ROOT / "tests" / "contracts" / "servers" / "differences.py"
CHECKING_WORDS = ("assert", "check", "expect", "prove", "refuse", "verify")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), named(path))


def find_tests(path: Path) -> list[Function]:
    """Test functions and methods, and the invariants of Hypothesis' state machines."""
    return [
        node
        for node in ast.walk(tree_of(path))
        if isinstance(node, Function) and node.name.startswith("test")
    ]


def called_name(call: ast.Call) -> str:
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def can_fail(test: Function) -> bool:
    """It asserts, expects an error, runs a state machine, or calls something that checks."""
    for node in ast.walk(test):
        if isinstance(node, ast.Assert):
            return True
        if isinstance(node, ast.Call):
            name = called_name(node)
            if name in ("raises", "fail", "warns", "run_state_machine_as_test"):
                return True
            if any(word in name for word in CHECKING_WORDS):
                return True
    return False


@pytest.mark.parametrize("path", TEST_FILES, ids=named)
class TestEveryTestFile:
    """What each file under tests/ keeps to."""

    def test_opens_with_its_subject(self, path):
        """A docstring at the top says what the file is about."""
        assert ast.get_docstring(tree_of(path))

    def test_states_a_fact_for_every_test(self, path):
        """Every test has a docstring: name and docstring together are the documentation."""
        silent = [test.name for test in find_tests(path) if not ast.get_docstring(test)]

        assert silent == []

    def test_has_no_test_that_cannot_fail(self, path):
        """Every test asserts, expects an error, or calls a function that checks."""
        assert [test.name for test in find_tests(path) if not can_fail(test)] == []

    def test_has_no_mocks(self, path):
        """The memory adapters are complete, so nothing needs to be pretended."""
        imported = {
            name.name if isinstance(node, ast.Import) else f"{node.module}.{name.name}"
            for node in ast.walk(tree_of(path))
            if isinstance(node, (ast.Import, ast.ImportFrom))
            for name in node.names
        }

        assert [name for name in imported if name.startswith(("unittest.mock", "mock"))] == []

    def test_skips_nothing_for_good(self, path):
        """
        No test is marked to be skipped or to fail. A body may call `pytest.skip` with the
        reason why this machine cannot run it, and for nothing else. What a server of the tests
        does otherwise than Amazon's is in one list, which `docs/testing.md` shows.
        """
        if path == DIFFERENCES_OF_SERVERS:
            return
        marks = [
            ast.unparse(node)
            for node in ast.walk(tree_of(path))
            if isinstance(node, ast.Attribute)
            and ast.unparse(node)
            in ("pytest.mark.skip", "pytest.mark.xfail", "pytest.importorskip")
        ]

        assert marks == []


def test_shared_fixtures_stay_few():
    """No conftest.py has more than 100 lines, so a test can be read without a book beside it."""
    lines = {
        named(path): len(path.read_text().splitlines())
        for path in TEST_FILES
        if path.name == "conftest.py"
    }

    assert {name: count for name, count in lines.items() if count > 100} == {}


@pytest.mark.parametrize(("ci", "repeats"), [(None, False), ("", False), ("true", True)])
def test_examples_are_new_ones_but_in_ci(ci, repeats):
    """`make soak` would otherwise try what it tried before."""
    environment = {name: value for name, value in os.environ.items() if name != "CI"}
    asked = "import tests.conftest, hypothesis; print(hypothesis.settings.default.derandomize)"

    done = subprocess.run(
        [sys.executable, "-c", asked],
        cwd=ROOT,
        env=environment | ({} if ci is None else {"CI": ci}),
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.strip() == str(repeats)
