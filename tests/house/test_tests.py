"""Tests are read as documentation, so they say what they prove, and prove something."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.house.sources import (
    Found,
    Function,
    Source,
    all_tests,
    check_finds_marked_lines,
    check_none,
    offenders,
    read,
)
from tests.patience import PATIENCE_S

DIFFERENCES_OF_SERVERS = "tests/contracts/servers/differences.py"
CHECKING_WORDS = ("assert", "check", "expect", "prove", "refuse", "verify")
NEVER_RUN = ("pytest.mark.skip", "pytest.mark.xfail", "pytest.importorskip")
CONFTEST_LINES_MAX = 100
IMPATIENT_S = 5  # shorter ones are no limits: what is not to happen meanwhile
# Asking functions whose own wait is five seconds, or has no end.
WAITING = ("httpx.get", "httpx.post", "httpx.Client", "httpx.stream", "urlopen")


def found_tests(source: Source) -> list[Function]:
    """Test functions and methods, and the invariants of Hypothesis' state machines."""
    return [each for each in source.functions if each.name.startswith("test")]


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


# ---------------------------------------------------------------- rules


def files_without_a_subject(source: Source) -> Iterator[Found]:
    if not source.docstring:
        yield 1, "no docstring"


def without_a_fact(source: Source) -> Iterator[Found]:
    for test in found_tests(source):
        if not ast.get_docstring(test):
            yield test.lineno, test.name


def that_cannot_fail(source: Source) -> Iterator[Found]:
    for test in found_tests(source):
        if not can_fail(test):
            yield test.lineno, test.name


def mocks(source: Source) -> Iterator[Found]:
    for node in source.imports:
        for alias in node.names:
            name = alias.name if isinstance(node, ast.Import) else f"{node.module}.{alias.name}"
            if name.startswith(("unittest.mock", "mock")):
                yield node.lineno, name


def never_run(source: Source) -> Iterator[Found]:
    for node in source.nodes(ast.Attribute):
        if node.attr in ("skip", "xfail", "importorskip") and ast.unparse(node) in NEVER_RUN:
            yield node.lineno, ast.unparse(node)


def waits_of_unknown_length(source: Source) -> Iterator[Found]:
    for node in source.nodes(ast.Call):
        name = ast.unparse(node.func)
        if name.endswith(WAITING) and not any(each.arg == "timeout" for each in node.keywords):
            yield node.lineno, name


def impatient_waits(source: Source) -> Iterator[Found]:
    for node in source.nodes(ast.Call):
        limits = [each.value for each in node.keywords if each.arg == "timeout"]
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("wait", "join"):
            limits += node.args
        for limit in limits:
            seconds = limit.value if isinstance(limit, ast.Constant) else None
            if isinstance(seconds, int | float) and IMPATIENT_S <= seconds < PATIENCE_S:
                yield node.lineno, ast.unparse(node.func)


def long_conftests(source: Source) -> Iterator[Found]:
    if source.path.name == "conftest.py" and len(source.lines) > CONFTEST_LINES_MAX:
        yield 1, f"{len(source.lines)} lines"


# ---------------------------------------------------------------- what each test file keeps to


def test_files_open_with_their_subject():
    """A docstring at the top says what the file is about."""
    check_none(offenders(files_without_a_subject, all_tests()), "say what the tests are about")


def test_every_test_states_a_fact():
    """Every test has a docstring: name and docstring together are the documentation."""
    check_none(offenders(without_a_fact, all_tests()), "say in a sentence what is true")


def test_every_test_can_fail():
    """Every test asserts, expects an error, or calls a function that checks."""
    check_none(
        offenders(that_cannot_fail, all_tests()),
        f"assert something, or call a function named after one of {', '.join(CHECKING_WORDS)}",
    )


def test_there_are_no_mocks():
    """The memory adapters are complete, so nothing needs to be pretended."""
    check_none(offenders(mocks, all_tests()), "use an adapter in memory, or a real server")


def test_nothing_is_skipped_for_good():
    """
    No test is marked to be skipped or to fail. A body may call `pytest.skip` with the
    reason why this machine cannot run it, and for nothing else. What a server of the tests
    does otherwise than Amazon's is in one list, which `docs/testing.md` shows.
    """
    others = [each for each in all_tests() if each.name != DIFFERENCES_OF_SERVERS]

    check_none(offenders(never_run, others), "mend the test, or call pytest.skip in it")
    assert [*never_run(read(DIFFERENCES_OF_SERVERS))], "it needs no exception any more"


def test_requests_say_how_long_they_wait():
    """The five seconds of httpx are short on a machine that runs other tests; no end is too long."""
    check_none(offenders(waits_of_unknown_length, all_tests()), "pass timeout=PATIENCE_S")


def test_tests_wait_as_long_as_the_machine_takes():
    """What must happen is waited for by `tests/patience.py`, not for as long as it took once."""
    check_none(offenders(impatient_waits, all_tests()), "wait for PATIENCE_S, or becomes_true")


def test_shared_fixtures_stay_few():
    """No conftest.py has more than 100 lines, so a test can be read without a book beside it."""
    check_none(
        offenders(long_conftests, all_tests()), "move builders beside the tests that use them"
    )


# ---------------------------------------------------------------- the rules find what they forbid

MARKED = {
    without_a_fact: """\
def test_one(): "One is one."
def test_two(): pass  # bad
class TestThree:
    async def test_four(self): pass  # bad
def build(): pass
""",
    that_cannot_fail: """\
def test_asserts():
    if True:
        assert 1
def test_expects():
    with pytest.raises(ValueError): pass
def test_calls():
    table.check_rows()
def test_runs():  # bad
    table.run()
class TestMany:
    def test_nothing(self): pass  # bad
def build(): pass
""",
    mocks: """\
import unittest
import os, unittest.mock  # bad
from unittest import TestCase, mock  # bad
from unittest.mock import Mock  # bad
from tests.model import mock
def inside():
    import mock  # bad
""",
    never_run: """\
@pytest.mark.skip(reason="later")  # bad
@pytest.mark.skipif(True, reason="never")
@pytest.mark.soak
def test_one():
    pytest.skip("no server here")
@pytest.mark.xfail  # bad
def test_two(): pass
duckdb = pytest.importorskip("duckdb")  # bad
""",
    waits_of_unknown_length: """\
httpx.get(url, timeout=60)
httpx.post(url, json={})  # bad
urllib.request.urlopen(url)  # bad
client.get(url)
""",
    impatient_waits: """\
process.wait(60)  # bad
subprocess.run(command, timeout=30.0)  # bad
", ".join(names)
stop.wait(0.1)
process.wait(PATIENCE_S)
""",
}


@pytest.mark.parametrize("rule", MARKED, ids=lambda rule: rule.__name__)
def test_a_rule_finds_what_it_forbids(rule):
    """Given a text with good and bad lines, then the rule finds the bad ones alone."""
    check_finds_marked_lines(rule, MARKED[rule], "tests/unit/test_a.py")


@pytest.mark.parametrize(
    ("rule", "name", "text", "found"),
    [
        (files_without_a_subject, "test_a.py", "import os\n", ["no docstring"]),
        (files_without_a_subject, "test_a.py", '"""A subject."""\n', []),
        (long_conftests, "unit/conftest.py", "\n" * 101, ["101 lines"]),
        (long_conftests, "unit/conftest.py", "\n" * 100, []),
        (long_conftests, "unit/test_a.py", "\n" * 101, []),
    ],
)
def test_a_rule_for_whole_files_finds_what_it_forbids(rule, name, text, found):
    """Given a file, then what is wrong with it as a whole is found."""
    assert [each for _, each in rule(Source(f"tests/{name}", text))] == found
