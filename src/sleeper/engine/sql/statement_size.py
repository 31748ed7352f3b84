"""Limits how many operators a statement may have.

DataFusion plans a chain of operators by recursion: one of some thousand ends the process.
"""

from __future__ import annotations

import re
from typing import Final

from sleeper.errors import QueryInvalid

OPERATORS_MAX: Final = 1_500
"""A chain of 3,000 additions ended a process with a stack of 8 MiB."""

_QUOTED: Final = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"")
_OPERATOR: Final = re.compile(
    r"::|\[|[-+*/%|&^~<>=!#@]+"
    r"|\b(?:and|or|not|is|i?like|similar|between|union|intersect|except|join|collate)\b",
    re.IGNORECASE,
)


def check_operators(text: str, operators_max: int = OPERATORS_MAX) -> None:
    """Check that SQL has not too many operators.

    Raises:
        QueryInvalid: it has.
    """
    operators = sum(1 for _ in _OPERATOR.finditer(_QUOTED.sub("", text)))
    if operators > operators_max:
        raise QueryInvalid(
            f"the SQL has {operators:,} operators, and {operators_max:,} are allowed. Ask by keys= "
            "or regions=, use IN (...), or ask several times."
        )
