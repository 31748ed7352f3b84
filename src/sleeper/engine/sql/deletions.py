"""Reads DELETE statements: the name of the table, and the condition as it is written.

The condition is checked by DataFusion's parser later, as that of `Table.delete(where=...)`: nothing
may follow it, and it has no query inside.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from sleeper.errors import QueryInvalid

_COMMENT: Final = re.compile(r"\s*(?:--[^\n]*(?:\n|$)|/\*.*?\*/)", re.DOTALL)
_IS_DELETE: Final = re.compile(r"\s*delete\b", re.IGNORECASE)
_FORM: Final = re.compile(
    r'\s*delete\s+from\s+(?:"(?P<quoted>(?:[^"]|"")+)"|(?P<name>\w+))'
    r"(?P<condition>\s+where\b(?P<where>.*))?",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class SqlDeletion:
    """What a DELETE statement asks for.

    Attributes:
        table: The name of the table.
        where: The condition that rows meet which are to go.
    """

    table: str
    where: str


def deletion_in(statement: object) -> SqlDeletion | None:
    """Return what a statement deletes; None if it is no DELETE statement.

    Raises:
        QueryInvalid: it has no condition, or more than a table and a condition.
    """
    if not isinstance(statement, str):
        return None
    text = without_comments(statement)
    if _IS_DELETE.match(text) is None:
        return None
    text = text.rstrip().removesuffix(";").rstrip()
    form = _FORM.fullmatch(text)
    if form is None:
        raise QueryInvalid(
            "DELETE has one form here: DELETE FROM table WHERE condition, with a name that has "
            'signs in quotes ("my-table") and columns by their names alone. Nothing was deleted'
        )
    table = form["name"] or form["quoted"].replace('""', '"')
    if form["where"] is None:
        raise QueryInvalid(
            f"DELETE without WHERE would remove all rows of table {table!r}. Nothing was deleted. "
            "Give a condition, or remove all rows by Table.reinitialise() "
            f"(`sleeper table reinitialise {table}`)"
        )
    return SqlDeletion(table, form["where"].strip())


def without_comments(statement: str) -> str:
    """Return a statement without the comments before its first word."""
    while (comment := _COMMENT.match(statement)) is not None:
        statement = statement[comment.end() :]
    return statement
