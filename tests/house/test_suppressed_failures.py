"""No failure is swallowed in silence: who goes on after one logs it, or is listed here."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator

from sleeper import errors
from tests.house.sources import Found, Source, check_finds_marked_lines, package

FAILURES = {
    name
    for scope in (vars(errors), vars(builtins))
    for name, value in scope.items()
    if isinstance(value, type) and issubclass(value, (errors.SleeperError, OSError))
} - {"FileExistsError", "FileNotFoundError", "IsADirectoryError", "NotADirectoryError"}
"""Without those that say how a file is: they are answers."""
_UNWANTED = "what is closed or removed is not wanted, and another error is on its way"
ALLOWED = {
    "storage.local.folder.signature_of": "a file that cannot be seen is looked at by who asks",
    "engine.inputs.input_files._what_else": "a file that cannot be read is refused already",
    "engine.inputs.validated_input.drop": _UNWANTED,
    "engine.writing.export._remove_empty": "a folder that somebody uses may stay",
    "engine.writing.user_file.discard": _UNWANTED,
    "interfaces.cli.destroy._listed": "stacks may be left of an instance without data",
    "spark.java._wrapper_home": "without the user's folder a temporary one is as good",
    "spark.session._memory_bytes": "a machine without cgroups has no limit",
    "storage.local.unfinished.abort": _UNWANTED,
    "storage.local.unfinished._open": "a file of another user, who has shared it already",
    "tables.garbage._still_there": "a file that is gone was deleted, as it should be",
    "storage.places.enclosing_instance": "a parent that may not be read is no instance of ours",
}
"""Why a function may go on in silence, by module and function."""


def failures_in(node: ast.AST | None) -> set[str]:
    """The names of failures in an expression."""
    if node is None:
        return set()
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return names & FAILURES


def swallows(node: ast.AST) -> bool:
    """A `suppress(...)` of a failure, or an `except` of one with nothing but pass or continue."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("suppress", "contextlib.suppress"):
        return any(failures_in(argument) for argument in node.args)
    if isinstance(node, ast.ExceptHandler) and failures_in(node.type):
        return all(isinstance(each, (ast.Pass, ast.Continue)) for each in node.body)
    return False


def silent_functions(source: Source) -> Iterator[Found]:
    """Every function that swallows a failure."""
    silent = [node for node in source.nodes(ast.Call, ast.ExceptHandler) if swallows(node)]
    for function in source.functions if silent else ():
        if any(function.lineno <= node.lineno <= function.end_lineno for node in silent):
            yield function.lineno, function.name


def test_failures_are_logged_or_allowed():
    """`contextlib.suppress` and `except: pass` have no place for a log line."""
    silent = {
        f"{'.'.join(source.path.relative_to('src/sleeper').with_suffix('').parts)}.{name}"
        for source in package()
        for _, name in silent_functions(source)
    }

    assert silent - {*ALLOWED} == set(), "log the failure, or give a reason in ALLOWED"
    assert {*ALLOWED} - silent == set(), "these swallow nothing any more: take them out of ALLOWED"


MARKED = """\
def answers():
    with suppress(FileNotFoundError, ValueError):
        go_on()
def suppresses():  # bad
    with contextlib.suppress(ValueError, CommitUnknown):
        go_on()
async def passes():  # bad
    try:
        go_on()
    except (KeyError, OSError):
        pass
def outer():  # bad
    def inner():  # bad
        for each in all_of_them():
            try:
                go_on()
            except errors.SleeperError as error:
                continue
            except SleeperError as error:
                continue
def logs():
    try:
        go_on()
    except OSError as error:
        log(error)
"""


def test_a_function_that_swallows_a_failure_is_found():
    """Given functions that swallow, log or answer, then those that swallow are found."""
    check_finds_marked_lines(silent_functions, MARKED)
