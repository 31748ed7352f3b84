"""The bugs that `make mutants` puts into the code still fit the code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.house.sources import PACKAGE, ROOT, Source, check_none, read
from tools.mutants.__main__ import Outcome, Row, only_caught_by_the_bug
from tools.mutants.bug import Bug, all_bugs


def text_is_not_there_once(bug: Bug, source: Source) -> str:
    """What is wrong with the text that a bug replaces."""
    count = source.text.count(bug.right)
    return "" if count == 1 else f"its text is {count} times in {source.name}"


def leaves_no_other_code(bug: Bug, source: Source) -> str:
    """What is wrong with the code that a bug leaves."""
    right = around(bug, source)
    wrong = right.replace(bug.right, bug.wrong)
    try:
        broken = ast.parse(wrong)
    except SyntaxError as error:
        return f"what it leaves of {source.name} is no Python: {error.msg}"
    same = ast.dump(broken) == ast.dump(ast.parse(right))
    return f"it changes nothing in {source.name}" if same else ""


def around(bug: Bug, source: Source) -> str:
    """The statements of a module, whole, that have the text of a bug, wherever that is."""
    starts = [
        min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))]) - 1
        for node in source.tree.body
    ]
    first = source.text.count("\n", 0, max(source.text.find(bug.right), 0))
    last = first + bug.right.count("\n")
    begin = max((start for start in starts if start <= first), default=0)
    end = min((start for start in starts if start > last), default=None)
    return "".join(source.text.splitlines(keepends=True)[begin:end])


def names_missing_tests(bug: Bug) -> str:
    """What is wrong with the tests that are to catch a bug."""
    paths = [argument for argument in bug.tests if argument.startswith("tests/")]
    missing = [path for path in paths if not (ROOT / path).exists()]
    if not paths:
        return "it names no path of a test"
    return f"not there: {', '.join(missing)}" if missing else ""


def with_sources() -> Iterator[tuple[Bug, Source]]:
    """Each bug whose module is there, with its module."""
    for bug in all_bugs():
        if (ROOT / PACKAGE / bug.module).is_file():
            yield bug, read(f"{PACKAGE}/{bug.module}")


def check_bugs(answers: Iterator[tuple[Bug, str]], instead: str) -> None:
    check_none((f"{bug.name}: {answer}" for bug, answer in answers if answer), instead)


def test_bugs_replace_text_that_is_there_once():
    """With the code that it breaks, a bug is changed or goes."""
    gone = [bug for bug in all_bugs() if not (ROOT / PACKAGE / bug.module).is_file()]

    check_bugs(((bug, f"{bug.module} is not there") for bug in gone), "name its module of today")
    check_bugs(
        ((bug, text_is_not_there_once(bug, source)) for bug, source in with_sources()),
        "change the bug with its code, in tools/mutants/bugs",
    )


def test_bugs_leave_code_that_is_python():
    """What cannot be read is caught by any test, which proves nothing."""
    check_bugs(
        ((bug, leaves_no_other_code(bug, source)) for bug, source in with_sources()),
        "make it a slip that runs",
    )


def test_bugs_name_tests_that_are_there():
    """The paths among the arguments of pytest exist."""
    check_bugs(((bug, names_missing_tests(bug)) for bug in all_bugs()), "name tests of today")


def test_bugs_are_many_and_each_has_a_name_of_its_own():
    """At least 20, told apart by name and by sentence."""
    assert len(all_bugs()) >= 20
    assert len({bug.name for bug in all_bugs()}) == len(all_bugs())
    assert len({bug.breaks for bug in all_bugs()}) == len(all_bugs())


SOURCE = Source("src/sleeper/a.py", "one = 1\ntwo = 1 + 1\nif one > 0: pass\n")
BUG = Bug(
    name="a",
    breaks="Nothing.",
    module="a.py",
    right="> 0",
    wrong=">= 0",
    tests=("tests/unit", "-x"),
)


@pytest.mark.parametrize(
    ("change", "answers"),
    [
        ({}, ["", "", ""]),
        ({"right": "= 2"}, ["its text is 0 times in", "it changes nothing in", ""]),
        ({"right": "1\n", "wrong": "2\n"}, ["its text is 2 times in", "", ""]),
        ({"wrong": "> > 0"}, ["", "is no Python", ""]),
        ({"wrong": ">  0"}, ["", "it changes nothing in", ""]),
        ({"tests": ("-x",)}, ["", "", "it names no path"]),
        ({"tests": ("tests/unit", "tests/gone")}, ["", "", "not there: tests/gone"]),
    ],
)
def test_a_bug_that_does_not_fit_is_found(change, answers):
    """Given a bug that does not fit its code or its tests, then it is said what does not."""
    bug = replace(BUG, **change)
    found = [
        text_is_not_there_once(bug, SOURCE),
        leaves_no_other_code(bug, SOURCE),
        names_missing_tests(bug),
    ]

    assert [answer in each for answer, each in zip(answers, found, strict=True)] == [True] * 3
    assert [bool(each) for each in found] == [bool(answer) for answer in answers]


def test_a_test_that_fails_without_a_bug_has_caught_none(capsys):
    """Given two bugs, where the test of one fails on a copy without a bug, then that is no catch."""
    rows = [Row(bug=name, caught_by=f"tests/{name}.py::t", took_s=1) for name in ("a", "b")]
    without = Outcome(code=1, failed=("tests/b.py::t",), output="", took_s=1)

    judged = only_caught_by_the_bug(rows, [without])

    assert [(row.bug, row.caught_by) for row in judged] == [("a", "tests/a.py::t"), ("b", "")]
    assert "b: NOT CAUGHT: without it the test fails too: tests/b.py::t" in capsys.readouterr().out


def test_copies_without_a_bug_that_do_not_run_are_no_answer():
    """Given a run without a bug that did not end, then nothing is said of what caught bugs."""
    with pytest.raises(RuntimeError, match="do not run on a copy without a bug: no end after 9 s"):
        only_caught_by_the_bug([], [Outcome(code=None, failed=(), output="", took_s=9)])
