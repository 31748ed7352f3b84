"""Answers plain statements without a plan: rows by their keys, their number, or the first of them.

    SELECT * | columns | count(*) [AS name] FROM table [WHERE conditions] [LIMIT number]

Conditions compare row keys with constants of their types by =, <>, <, <=, >, >=, IN, BETWEEN and
LIKE 'prefix%', joined by AND. A planner finds the very same read (`plans.direct_read`), and takes
several times as long as the read does. Whatever has another form, or might mean something else than
it seems to, is left to the planner: a comment, an escape, a name that is a word of SQL, a constant
of another type. So is what is wrong, for the planner to tell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import date
from functools import partial
from typing import Any, Final, Self

import pyarrow as pa

from sleeper.engine.rows import Rows
from sleeper.engine.sql.comparable_floats import comparable_table
from sleeper.engine.sql.conditions import pattern_condition
from sleeper.engine.sql.table_scan import NarrowedRead, ScannedTable
from sleeper.state.plans.key_conditions import UNKNOWN, AllOf, Condition, KeyCondition, Operator

_TEXT_LENGTH_MAX: Final = 100_000
_LIMIT_MAX: Final = 2**62
_DIGITS_MAX: Final = 20
_TOKEN: Final = re.compile(
    r"[ \t\r\n]*(?:('(?:[^'\\\0]|'')*')|(\"(?:[^\"]|\"\")+\")|([A-Za-z_][A-Za-z0-9_]*)|(-?[0-9]+)"
    r"|(<=|>=|<>|!=|[=<>(),*;]))"
)
"""A text, a name in quotes, a word, a whole number, or a sign."""

_COMPARISONS: Final[dict[str, Operator]] = {
    "=": "=",
    "<>": "!=",
    "!=": "!=",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
}
_BITS: Final = {pa.int32(): 31, pa.int64(): 63}
_SQL_WORDS: Final = """
all analyze and anti any array as asc asof at authorization between binary both by case cast
ceil cluster collate collation column constraint convert cross cube current current_catalog
current_date current_path current_role current_schema current_time current_timestamp
current_user date default desc describe distinct distribute div else end escape except exclude
exists explain extract false fetch filter final first floor following for from full global group
grouping having ilike in inner insert intersect interval into is isnull join lambda last lateral
leading left like limit localtime localtimestamp map match match_recognize minus natural next
not notnull null nulls of offset on only or order outer over overlay partition pivot position
preceding prewhere prior qualify range regexp replace right rlike rollup row rows sample select
semi session_user set sets settings similar some sort struct substr substring symmetric table
tablesample then time timestamp to top trailing trim true try_cast try_convert unbounded union
unique unknown unnest unpivot user using values view when where window with within without xor
"""
_WORDS: Final = frozenset(_SQL_WORDS.split())
"""Words that the planner may not take for names, if they are not in quotes."""

_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_PREFIX: Final = re.compile(r"([^%_]+)%")


def plain_rows(text: object, tables: Mapping[str, ScannedTable]) -> Rows | None:
    """Return the rows of a plain statement; None of any other, which is to be planned.

    Args:
        text: The statement.
        tables: The tables that it may name, by name.

    Raises:
        DataDamaged, TableFunctionFailed: as `NarrowedRead.rows`.
    """
    tokens = _Tokens.of(text)
    if tokens is None or not tokens.took("select"):
        return None
    counted = _count_name(tokens)
    is_all = counted is not None or tokens.took("*")
    columns = None if is_all else _names(tokens)
    if (columns is None) != is_all or counted == "":
        return None
    table = tables.get(tokens.name() or "") if tokens.took("from") else None
    if table is None or not {*(columns or ())} <= {*table.arrow_schema.names}:
        return None
    is_whole = not tokens.took("where")
    condition = UNKNOWN if is_whole else _conditions(tokens, table.arrow_schema)
    limit = tokens.number() if tokens.took("limit") else _LIMIT_MAX
    tokens.took(";")
    if condition is None or limit is None or not 0 <= limit <= _LIMIT_MAX or not tokens.at_end:
        return None
    if counted is not None and limit < _LIMIT_MAX:
        return None
    read = comparable_table(table).narrowed(condition)
    if not (is_whole or read.is_exact):
        return None
    if counted is not None:
        return _count(read, table.key, counted)
    names = table.arrow_schema.names if columns is None else columns
    if limit == _LIMIT_MAX:
        return read.rows(names)
    return read.rows(names, rows_max=limit).limited(limit)


def plain_read(where: object, table: ScannedTable) -> NarrowedRead | None:
    """Return the read of exactly the rows that meet a plain condition; None of any other condition.

    Args:
        where: The condition.
        table: The table.
    """
    tokens = _Tokens.of(where)
    condition = None if tokens is None else _conditions(tokens, table.arrow_schema)
    if tokens is None or condition is None or not tokens.at_end:
        return None
    read = table.narrowed(condition)
    return read if read.is_exact else None


def _count(read: NarrowedRead, key: str, name: str) -> Rows:
    schema = pa.schema([pa.field(name, pa.int64(), nullable=False)])

    def batches() -> Iterator[pa.RecordBatch]:
        with read.rows([key]) as rows:
            yield pa.RecordBatch.from_arrays([pa.array([rows.count()], pa.int64())], schema=schema)

    return Rows(batches(), schema, read.transaction)


# ---------------------------------------------------------------- reading text
#
# Each function takes off the tokens what it is for, and returns None if something else is there.

_TEXT, _QUOTED, _WORD, _NUMBER = 1, 2, 3, 4
"""Kinds of tokens, by the groups of `_TOKEN`."""


class _Tokens:
    """The words and signs of a statement, to take off one by one.

    Args:
        found: The kind and the text of each.

    Attributes:
        at_end: Whether none is left.
    """

    __slots__ = ("_at", "_found")

    def __init__(self, found: list[tuple[int, str]]) -> None:
        self._found = found
        self._at = 0

    @classmethod
    def of(cls, text: object) -> Self | None:
        """Return the tokens of a text; None if it has anything else, or is long."""
        if not isinstance(text, str) or len(text) > _TEXT_LENGTH_MAX:
            return None
        found, end = list[tuple[int, str]](), 0
        for match in _TOKEN.finditer(text):
            if match.start() != end:
                return None
            kind, end = match.lastindex or 0, match.end()
            found.append((kind, match[kind]))
        return None if text[end:].strip(" \t\r\n") else cls(found)

    @property
    def at_end(self) -> bool:
        return self._at == len(self._found)

    def took(self, *words: str) -> bool:
        """Take some words and signs, in either case, if they come next."""
        end = self._at + len(words)
        for word, (kind, text) in zip(words, self._found[self._at : end], strict=False):
            if kind in (_TEXT, _QUOTED) or text.lower() != word:
                return False
        if end > len(self._found):
            return False
        self._at = end
        return True

    def taken(self, *kinds: int) -> str | None:
        """Take the next token and return its text, if it is of one of some kinds."""
        if self.at_end or self._found[self._at][0] not in kinds:
            return None
        self._at += 1
        return self._found[self._at - 1][1]

    def name(self) -> str | None:
        """Take a name; words of SQL are none without quotes."""
        found = self.taken(_QUOTED, _WORD)
        if found is None or found.lower() in _WORDS:
            return None
        return found[1:-1].replace('""', '"') if found.startswith('"') else found

    def number(self) -> int | None:
        """Take a whole number."""
        found = self.taken(_NUMBER)
        return None if found is None or len(found) > _DIGITS_MAX else int(found)


def _count_name(tokens: _Tokens) -> str | None:
    """Take `count(*)`; return what its column is called."""
    if not tokens.took("count", "(", "*", ")"):
        return None
    return (tokens.name() or "") if tokens.took("as") else "count(*)"


def _names(tokens: _Tokens) -> list[str] | None:
    """Take names between commas, each another one."""
    names: list[str] = []
    while True:
        name = tokens.name()
        if name is None or name in names:
            return None
        names.append(name)
        if not tokens.took(","):
            return names


def _conditions(tokens: _Tokens, arrow_schema: pa.Schema) -> Condition | None:
    """Take conditions joined by AND."""
    parts: list[Condition] = []
    while True:
        part = _condition(tokens, arrow_schema)
        if part is None:
            return None
        parts.append(part)
        if not tokens.took("and"):
            return AllOf(tuple(parts)) if len(parts) > 1 else part


def _condition(tokens: _Tokens, arrow_schema: pa.Schema) -> Condition | None:
    """Take one comparison of a column with constants of its type."""
    column = tokens.name()
    if column is None or column not in arrow_schema.names:
        return None
    constant = partial(_constant, tokens, arrow_schema.field(column).type)
    if tokens.took("between"):
        low = constant()
        high = constant() if tokens.took("and") else None
        if low is None or high is None:
            return None
        return AllOf((KeyCondition(column, ">=", low), KeyCondition(column, "<=", high)))
    if tokens.took("in", "("):
        values = [constant()]
        while tokens.took(","):
            values.append(constant())
        is_whole = None not in values and tokens.took(")")
        return KeyCondition(column, "in", values) if is_whole else None
    if tokens.took("like"):
        pattern = constant()
        if not isinstance(pattern, str) or _PREFIX.fullmatch(pattern) is None:
            return None
        return pattern_condition(column, pattern)
    for sign, operator in _COMPARISONS.items():
        if tokens.took(sign):
            value = constant()
            return None if value is None else KeyCondition(column, operator, value)
    return None


def _constant(tokens: _Tokens, kind: pa.DataType) -> Any | None:
    """Take a constant of a type: a text, a whole number, or a day with or without DATE."""
    if kind in _BITS:
        number = tokens.number()
        return (
            number
            if number is not None and -(2 ** _BITS[kind]) <= number < 2 ** _BITS[kind]
            else None
        )
    is_day = kind == pa.date32()
    if is_day:
        tokens.took("date")
    elif kind != pa.string():
        return None
    quoted = tokens.taken(_TEXT)
    if quoted is None:
        return None
    text = quoted[1:-1].replace("''", "'")
    if is_day:
        return _day(text)
    return text if _is_unicode(text) else None


def _day(text: str) -> date | None:
    try:
        return date.fromisoformat(text) if _DAY.fullmatch(text) else None
    except ValueError:
        return None


def _is_unicode(text: str) -> bool:
    """Return whether a text can be written as UTF-8: one with half a pair of UTF-16 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
