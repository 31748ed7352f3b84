"""The bugs that `make mutants` puts into the code still fit the code."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tools.mutants.bug import all_bugs

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("bug", all_bugs(), ids=lambda bug: bug.name)
class TestEveryBug:
    """What each entry of tools/mutants/bugs/ keeps to."""

    def test_replaces_text_that_is_there_once(self, bug):
        """With the code that it breaks, a bug is changed or goes."""
        text = (ROOT / "src" / "sleeper" / bug.module).read_text()

        assert text.count(bug.right) == 1

    def test_leaves_code_that_is_python(self, bug):
        """What cannot be read is caught by any test, which proves nothing."""
        text = (ROOT / "src" / "sleeper" / bug.module).read_text()
        broken = text.replace(bug.right, bug.wrong)

        assert ast.dump(ast.parse(broken)) != ast.dump(ast.parse(text))

    def test_names_tests_that_are_there(self, bug):
        """The paths among the arguments of pytest exist."""
        paths = [ROOT / argument for argument in bug.tests if argument.startswith("tests/")]

        assert paths
        assert [path for path in paths if not path.exists()] == []


def test_bugs_are_many_and_each_has_a_name_of_its_own():
    """At least 20, told apart by name and by sentence."""
    assert len(all_bugs()) >= 20
    assert len({bug.name for bug in all_bugs()}) == len(all_bugs())
    assert len({bug.breaks for bug in all_bugs()}) == len(all_bugs())
