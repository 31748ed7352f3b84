"""The files that house rules are about: each is read and parsed once in a process of pytest.

A rule is a function that takes a `Source` and yields its offenders, as line and text. A test
applies it to many sources and calls `check_none`, so that one failure lists all offenders. Another
test gives each rule a source whose bad lines are marked, and calls `check_finds_marked_lines`.
"""

from __future__ import annotations

import ast
import gc
import re
from bisect import bisect
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path, PurePosixPath
from typing import TypeVar

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "src/sleeper"
MARK = "  # bad"

Function = ast.FunctionDef | ast.AsyncFunctionDef
Found = tuple[int, str]
Node = TypeVar("Node", bound=ast.AST)


@dataclass(frozen=True)
class Source:
    """A file of the repository.

    Attributes:
        name: Its path from the root of the repository on.
        text: What is in it.
    """

    name: str
    text: str

    @property
    def path(self) -> PurePosixPath:
        """Its path from the root on, to be taken apart."""
        return PurePosixPath(self.name)

    @property
    def in_package(self) -> str:
        """Its path from src/sleeper on."""
        return str(self.path.relative_to(PACKAGE))

    @cached_property
    def tree(self) -> ast.Module:
        """Its syntax tree."""
        with _collector_paused():
            return ast.parse(self.text, self.name)

    @cached_property
    def _nodes(self) -> dict[type[ast.AST], list[ast.AST]]:
        nodes = defaultdict(list)
        for node in ast.walk(self.tree):
            nodes[type(node)].append(node)
        return nodes

    def nodes(self, *kinds: type[Node]) -> list[Node]:
        """All nodes of its tree that are of one of these classes."""
        return [node for kind in kinds for node in self._nodes.get(kind, ())]

    @property
    def functions(self) -> list[Function]:
        """All functions and methods, also those inside others."""
        return self.nodes(ast.FunctionDef, ast.AsyncFunctionDef)

    @property
    def classes(self) -> list[ast.ClassDef]:
        """All classes, also those inside others."""
        return self.nodes(ast.ClassDef)

    @property
    def imports(self) -> list[ast.Import | ast.ImportFrom]:
        """All import statements, wherever they are."""
        return self.nodes(ast.Import, ast.ImportFrom)

    @property
    def docstring(self) -> str:
        """What the module says of itself; empty if it says nothing."""
        return ast.get_docstring(self.tree) or ""

    @cached_property
    def lines(self) -> list[str]:
        """Its lines."""
        return self.text.splitlines()

    def matches(self, pattern: re.Pattern[str]) -> Iterator[tuple[int, re.Match[str]]]:
        """Each place where a pattern fits, with the number of its line."""
        starts: list[int] = []
        for found in pattern.finditer(self.text):
            starts = starts or [at.end() for at in re.finditer("\n", self.text)]
            yield bisect(starts, found.start()) + 1, found


Rule = Callable[[Source], Iterable[Found]]


@cache
def read(name: str) -> Source:
    """Return one file."""
    return Source(name, (ROOT / name).read_text(encoding="utf-8"))


@cache
def sources(folder: str, suffix: str = ".py") -> tuple[Source, ...]:
    """Return all files below a folder with this suffix, by name."""
    paths = sorted((ROOT / folder).rglob(f"*{suffix}"))
    return tuple(read(path.relative_to(ROOT).as_posix()) for path in paths)


def package() -> tuple[Source, ...]:
    """Return all modules of the package `sleeper`."""
    return sources(PACKAGE)


def all_tests() -> tuple[Source, ...]:
    """Return all files of tests in Python."""
    return sources("tests")


def offenders(rule: Rule, of: Iterable[Source]) -> list[str]:
    """Return what a rule finds, each as `file:line: text`."""
    return [f"{each.name}:{line}: {text}" for each in of for line, text in rule(each)]


def check_none(found: Iterable[str], instead: str) -> None:
    """Fail if there are offenders: list them all, and say what to do instead."""
    if listed := [*found]:
        number = f"{len(listed)} offender{'s' * (len(listed) > 1)}"
        pytest.fail("\n".join([f"{number}: {instead}", *listed]), pytrace=False)


def check_finds_marked_lines(rule: Rule, text: str, name: str = f"{PACKAGE}/model/a.py") -> None:
    """Fail unless a rule finds the lines that end with `# bad`, and no other."""
    marked = [number for number, line in enumerate(text.splitlines(), 1) if line.endswith(MARK)]

    assert marked, "mark a line that is bad"
    assert sorted({line for line, _ in rule(Source(name, text))}) == marked


@contextmanager
def _collector_paused() -> Generator[None]:
    """Syntax trees stay until the end: searching them for garbage takes longer than parsing."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
