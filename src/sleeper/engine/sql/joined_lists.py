"""Finds statements whose lists (IN) DataFusion joins into one list that means something else.

DataFusion 55 replaces `x IN (1, 2) AND x NOT IN (1, NULL)` by `x IN (2)`, and two lists without a
common value by true or false; several `=` of one column are a list too. It forgets what nulls do: a
list with a null is never false, and of a null nothing is true or false. Where constants or a null
are gone from the optimized plan, the statement is planned without that rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

_SEVERAL: Final = re.compile(r"(?:=|<>|\bin\b).*(?:=|<>|\bin\b)", re.IGNORECASE | re.DOTALL)
_LIST: Final = re.compile(r"(\S+) (?:NOT )?IN \(\[(.*?)\]\)", re.DOTALL)
_EQUAL: Final = re.compile(r'(\S+) !?= (\w+\((?:".*?"|.*?)\))', re.DOTALL)
_OF_COLUMN: Final = re.compile(r"\((?:[^\W\d]\w*|\".*\")\.")
_ELEMENTS: Final = re.compile(r"\), ")
_NULL: Final = re.compile(r"\bNULL\b")

SIMPLIFY: Final = "simplify_expressions"
"""The rule of DataFusion's optimizer that joins lists."""


def joins_lists(text: str, frame: Any, plan: Any) -> bool:
    """Return whether lists of one column are joined so that values, or a null, are gone.

    It may say so of a statement that is right, which is then planned without the rule in vain.

    Args:
        text: The statement or condition.
        frame: It as a frame of DataFusion.
        plan: Its optimized plan.
    """
    if _SEVERAL.search(text) is None:
        return False
    pairs = _compared(frame.logical_plan().display_indent())
    columns = [column for column, _, _ in pairs]
    several = {column for column in columns if columns.count(column) > 1}
    if not several:
        return False
    if any(column in several and is_list and _NULL.search(text) for column, text, is_list in pairs):
        return True
    before, after = _constants(pairs), _constants(_compared(plan.display_indent()))
    return any(len(after.get(column, ())) < len(before[column]) for column in several)


def _compared(shown: str) -> list[tuple[str, str, bool]]:
    """Return each column that is compared with constants, these, and whether they are a list."""
    lists = [(_name(column), values, True) for column, values in _LIST.findall(shown)]
    alone = [
        (_name(column), value, False)
        for column, value in _EQUAL.findall(shown)
        if _OF_COLUMN.search(value) is None
    ]
    return lists + alone


def _constants(pairs: Iterable[tuple[str, str, bool]]) -> dict[str, set[str]]:
    """Return the constants that each column is compared with."""
    found: dict[str, set[str]] = {}
    for column, values, _ in pairs:
        constants = [each.rstrip(")") for each in _ELEMENTS.split(values)]
        found.setdefault(column, set()).update(constants)
    return found


def _name(column: str) -> str:
    """Return a column as it is shown, without its table: that may have an alias in one plan."""
    return column.rpartition(".")[2].lstrip("(")
