"""One bug that tests must catch, and all of them: each module in `bugs` has those of one area."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Bug:
    """One bug.

    Attributes:
        name: What it is called; each has a name of its own.
        breaks: What goes wrong, in a short sentence.
        module: The file, from `src/sleeper` on.
        right: The text that is replaced; it occurs once in the file.
        wrong: What comes in its place.
        tests: Arguments of pytest: the tests that must fail.
    """

    name: str
    breaks: str
    module: str
    right: str
    wrong: str
    tests: tuple[str, ...]


def all_bugs() -> tuple[Bug, ...]:
    """Return the bugs of every area, by area.

    Each is one slip of the kind that people make: a check left out, a bound off by one, one input
    too few. Most are to be caught by tests that know nothing of the line: commits, or whole
    instances, in any order.
    """
    areas = sorted(path.stem for path in (Path(__file__).parent / "bugs").glob("*.py"))
    found: list[Bug] = []
    for area in areas:
        found += import_module(f"{__package__}.bugs.{area}").BUGS
    return tuple(found)
