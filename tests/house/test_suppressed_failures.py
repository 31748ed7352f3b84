"""No failure is swallowed in silence: who goes on after one logs it, or is listed here."""

from __future__ import annotations

import ast
import builtins
from pathlib import Path

from sleeper import errors

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "sleeper"
FAILURES = {
    name
    for scope in (vars(errors), vars(builtins))
    for name, value in scope.items()
    if isinstance(value, type) and issubclass(value, (errors.SleeperError, OSError))
} - {"FileExistsError", "FileNotFoundError", "IsADirectoryError", "NotADirectoryError"}
"""Without those that say how a file is: they are answers."""
_UNWANTED = "what is closed or removed is not wanted, and another error is on its way"
ALLOWED = {
    "engine.inputs.set_aside.drop": _UNWANTED,
    "engine.writing.atomic_directory._remove_empty": "a folder that somebody uses may stay",
    "engine.writing.unfinished_file.discard": _UNWANTED,
    "interfaces.cli.services.operating._listed": "stacks may be left of an instance without data",
    "spark.java._wrapper_home": "without the user's folder a temporary one is as good",
    "spark.session._memory_bytes": "a machine without cgroups has no limit",
    "storage.local.unfinished.abort": _UNWANTED,
    "storage.local.writer_lock._open": "a file of another user, who has shared it already",
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


def silent_functions():
    """Every function that swallows a failure, as `module.function`."""
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        module = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef) and any(map(swallows, ast.walk(function))):
                yield f"{module}.{function.name}"


def test_failures_are_logged_or_allowed():
    """`contextlib.suppress` and `except: pass` have no place for a log line."""
    assert set(silent_functions()) == set(ALLOWED)
