"""A table as a LazyFrame of polars: columns and conditions are pushed down to the reader.

polars gives the condition as an expression, which it also lets us take apart: `meta.pop` returns
the inputs of an operation, and `meta.eq` compares. So an operation is known if the same operation
on the same inputs is equal to it. polars evaluates the condition on every row in any case.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Never

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
from polars.io.plugins import register_io_source

from sleeper.engine.sql.table_scan import ScannedTable
from sleeper.state.plans.key_conditions import (
    UNKNOWN,
    AllOf,
    AnyOf,
    Condition,
    KeyCondition,
    Negation,
    Operator,
)

Build = Callable[[pl.Expr, pl.Expr], pl.Expr]

_COMPARISONS: Final[dict[Operator, Build]] = {
    "=": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
    "in": lambda left, right: left.is_in(right),
    "prefix": lambda left, right: left.str.starts_with(right),
}
_MIRRORED: Final[dict[Operator, Operator]] = {
    "=": "=",
    "!=": "!=",
    "<": ">",
    "<=": ">=",
    ">": "<",
    ">=": "<=",
}


def scan_polars(table: ScannedTable) -> pl.LazyFrame:
    """Return the rows of a table as a LazyFrame, which reads them when it is collected."""
    empty = pl.from_arrow(table.arrow_schema.empty_table())
    assert isinstance(empty, pl.DataFrame)
    schema = empty.schema

    def batches(
        with_columns: list[str] | None,
        predicate: pl.Expr | None,
        n_rows: int | None,
        batch_size: int | None,
    ) -> Iterator[pl.DataFrame]:
        names = table.arrow_schema.names if with_columns is None else with_columns
        needed = {*names, *(() if predicate is None else predicate.meta.root_names())}
        columns = [name for name in table.arrow_schema.names if name in needed]
        known = UNKNOWN if predicate is None else polars_condition(predicate, table.arrow_schema)
        left = n_rows
        with table.narrowed(known).rows(columns or [table.key]) as rows:
            for batch in rows:
                frame = pl.from_arrow(pa.Table.from_batches([batch]))
                assert isinstance(frame, pl.DataFrame)
                if predicate is not None:
                    frame = frame.filter(predicate)
                if left is not None:
                    frame = frame.head(left)
                    left -= frame.height
                yield frame.select(names)
                if left == 0:
                    return

    return register_io_source(batches, schema=schema)


def polars_condition(expression: pl.Expr, arrow_schema: pa.Schema) -> Condition:
    """Return the condition that an expression of polars is."""
    try:
        return _converted(expression, arrow_schema)
    except RecursionError:  # thousands of terms, each inside the one before
        return UNKNOWN


def _converted(expression: pl.Expr, arrow_schema: pa.Schema) -> Condition:
    inputs = _inputs(expression)
    if len(inputs) == 1:
        (only,) = inputs
        if _is(~only, expression):
            return Negation(_converted(only, arrow_schema))
    if len(inputs) == 3:
        return _between(expression, inputs, arrow_schema)
    if len(inputs) != 2:
        return UNKNOWN
    left, right = inputs
    if _is(left & right, expression):
        return AllOf((_converted(left, arrow_schema), _converted(right, arrow_schema)))
    if _is(left | right, expression):
        return AnyOf((_converted(left, arrow_schema), _converted(right, arrow_schema)))
    if left.meta.is_column():
        return _comparison(expression, left, right, arrow_schema)
    for operator, mirrored in _MIRRORED.items():
        if right.meta.is_column() and _is(_COMPARISONS[operator](left, right), expression):
            turned = _COMPARISONS[mirrored](right, left)
            return _comparison(turned, right, left, arrow_schema)
    return UNKNOWN


def _inputs(expression: pl.Expr) -> list[pl.Expr]:
    """Return the inputs of an operation, in order; none of a column or constant."""
    if expression.meta.is_column() or expression.meta.is_literal():
        return []
    return [*reversed(expression.meta.pop())]


def _is(built: pl.Expr, expression: pl.Expr) -> bool:
    return bool(built.meta.eq(expression))


def _comparison(
    expression: pl.Expr, column: pl.Expr, constant: pl.Expr, arrow_schema: pa.Schema
) -> Condition:
    known, value = _value(constant)
    name = column.meta.output_name()
    if not known or name not in arrow_schema.names:
        return UNKNOWN
    is_list = isinstance(value, pl.Series)
    is_text = arrow_schema.field(name).type == pa.string() and isinstance(value, str)
    for operator, build in _COMPARISONS.items():
        if is_list != (operator == "in") or (operator == "prefix" and not is_text):
            continue
        if _is(build(column, constant), expression):
            return KeyCondition(name, operator, value.to_list() if is_list else value)
    return UNKNOWN


def _between(expression: pl.Expr, inputs: list[pl.Expr], arrow_schema: pa.Schema) -> Condition:
    column, low, high = inputs
    if not column.meta.is_column() or not _is(column.is_between(low, high), expression):
        return UNKNOWN
    return AllOf(
        (
            _comparison(column >= low, column, low, arrow_schema),
            _comparison(column <= high, column, high, arrow_schema),
        )
    )


def _value(constant: pl.Expr) -> tuple[bool, Any]:
    """Return whether a constant is known, and its Python value; a Series for a list."""
    if not constant.meta.is_literal():
        return False, None
    value = pl.select(constant).to_series()
    if len(value) != 1 or value[0] is None:
        return False, None
    return True, value[0]


# ---------------------------------------------------------------- expression conditions
#
# Converts a condition that is an expression of pyarrow into one on keys.
#
# pyarrow has no way to look into an expression but its text, which promises nothing. So the text
# is read, an expression is built from what was understood, and pyarrow compares it with the given
# one. Only if they are equal, what was understood is what is meant; else nothing is known.

_OPERATORS: Final[dict[str, Operator]] = {
    "==": "=",
    "!=": "!=",
    "<=": "<=",
    ">=": ">=",
    "<": "<",
    ">": ">",
}
_TEXT: Final = re.compile(r'"((?:[^"\\]|\\.)*)"')
_PLAIN: Final = re.compile(r"[^()\[\]{}\",]+")
_ESCAPED: Final = re.compile(r"\\(.)")
_LIST: Final = re.compile(r", \{value_set=[^\[\]]*:\[\s*")


class _NotUnderstood(Exception):
    """The text has another form."""


@dataclass(frozen=True, slots=True)
class _Understood:
    """A part of a text: as an expression of pyarrow, and as a condition."""

    expression: pc.Expression
    condition: Condition


def arrow_condition(expression: pc.Expression, arrow_schema: pa.Schema) -> Condition:
    """Return the condition that an expression is; `UNKNOWN` if it is not understood."""
    try:
        reader = _Reader(str(expression), arrow_schema)
        found = reader.whole()
    except (_NotUnderstood, pa.ArrowException, RecursionError, ValueError):
        return UNKNOWN
    return found.condition if found.expression.equals(expression) else UNKNOWN


class _Reader:
    """Reads the text of an expression from left to right."""

    def __init__(self, text: str, arrow_schema: pa.Schema) -> None:
        self._text = text
        self._place = 0
        self._schema = arrow_schema
        self._names = sorted(arrow_schema.names, key=len, reverse=True)

    def whole(self) -> _Understood:
        """Return what the whole text is."""
        found = self._condition()
        if self._place != len(self._text):
            raise _NotUnderstood
        return found

    def _condition(self) -> _Understood:
        if self._takes("invert("):
            part = self._condition()
            self._expect(")")
            return _Understood(~part.expression, Negation(part.condition))
        if self._takes("if_else(is_valid("):
            return self._in_list()
        if self._takes("is_valid("):
            name = self._name()
            self._expect(")")
            return _Understood(pc.field(name).is_valid(), UNKNOWN)
        if self._takes("is_null("):
            name = self._name()
            self._expect(", {nan_is_null=false})")
            return _Understood(pc.field(name).is_null(), UNKNOWN)
        self._expect("(")
        if self._text.startswith(("(", "invert(", "if_else(", "is_"), self._place):
            return self._both()
        return self._comparison()

    def _both(self) -> _Understood:
        left = self._condition()
        word = next((word for word in (" and ", " or ") if self._takes(word)), None)
        right = self._condition()
        self._expect(")")
        parts = (left.condition, right.condition)
        if word == " and ":
            return _Understood(left.expression & right.expression, AllOf(parts))
        if word == " or ":
            return _Understood(left.expression | right.expression, AnyOf(parts))
        raise _NotUnderstood

    def _comparison(self) -> _Understood:
        name = self._name()
        sign = next((sign for sign in _OPERATORS if self._takes(f" {sign} ")), None)
        if sign is None:
            raise _NotUnderstood
        constant = self._constant(self._schema.field(name).type)
        self._expect(")")
        compare = {
            "==": pc.Expression.__eq__,
            "!=": pc.Expression.__ne__,
            "<=": pc.Expression.__le__,
            ">=": pc.Expression.__ge__,
            "<": pc.Expression.__lt__,
            ">": pc.Expression.__gt__,
        }[sign]
        condition = KeyCondition(name, _OPERATORS[sign], constant.as_py())
        return _Understood(compare(pc.field(name), pc.scalar(constant)), condition)

    def _in_list(self) -> _Understood:
        """Read DuckDB's form of IN: null of a null."""
        name = self._name()
        self._expect("), is_in(")
        self._expect(name)
        start = _LIST.match(self._text, self._place)
        if start is None:
            raise _NotUnderstood
        self._place = start.end()
        kind, values = self._schema.field(name).type, list[pa.Scalar]()
        while not values or self._takes(","):
            self._blanks()
            values.append(self._constant(kind))
            self._blanks()
        self._expect("], null_matching_behavior=MATCH}), null[bool])")
        plain = [value.as_py() for value in values]
        column = pc.field(name)
        found = pc.if_else(
            column.is_valid(), column.isin(pa.array(plain, kind)), pa.scalar(None, pa.bool_())
        )
        return _Understood(found, KeyCondition(name, "in", plain))

    def _constant(self, kind: pa.DataType) -> Any:
        quoted = _TEXT.match(self._text, self._place)
        if quoted:
            self._place = quoted.end()
            if kind != pa.string():
                raise _NotUnderstood
            return pa.scalar(_ESCAPED.sub(r"\1", quoted[1]), kind)
        plain = _PLAIN.match(self._text, self._place)
        if plain is None or kind in (pa.string(), pa.binary()):
            raise _NotUnderstood
        self._place = plain.end()
        return pa.scalar(plain[0].strip()).cast(kind)

    def _name(self) -> str:
        name: str
        for name in self._names:
            if self._takes(name):
                return name
        raise _NotUnderstood

    def _takes(self, text: str) -> bool:
        if not self._text.startswith(text, self._place):
            return False
        self._place += len(text)
        return True

    def _expect(self, text: str) -> None:
        if not self._takes(text):
            raise _NotUnderstood

    def _blanks(self) -> None:
        while self._takes(" ") or self._takes("\n"):
            pass


# ---------------------------------------------------------------- duckdb dataset
#
# A table as a dataset that DuckDB reads: columns and conditions are pushed down to the reader.
#
# DuckDB asks the dataset for a scanner of some columns, with those of its conditions that pyarrow
# evaluates as it does; pyarrow evaluates them here, on every row. What the conditions say about
# row keys narrows what is read, if `expression_conditions` understands the whole expression.

_BATCHES_AHEAD = 2


class DuckdbDataset(pads.InMemoryDataset):  # type: ignore[misc]
    """The rows of one state of a table.

    Its own C++ object has no rows, so all other methods that read are refused.

    Args:
        table: The table.
    """

    def __init__(self, table: ScannedTable) -> None:
        super().__init__([], schema=table.arrow_schema)
        self._table = table

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 - pyarrow's own word
        **_: Any,
    ) -> pads.Scanner:
        """Return the scanner of rows that meet a condition."""
        names = [*(self.schema.names if columns is None else columns)]
        needed = self._needed(names, filter)
        condition = UNKNOWN if filter is None else arrow_condition(filter, self.schema)
        schema = pa.schema([self.schema.field(name) for name in needed])
        return pads.Scanner.from_batches(
            self._batches(needed, condition),
            schema=schema,
            columns=names,
            filter=filter,
            batch_readahead=_BATCHES_AHEAD,
        )

    def _batches(self, names: Sequence[str], condition: Condition) -> Iterator[pa.RecordBatch]:
        with self._table.narrowed(condition).rows(names) as rows:
            yield from rows

    def _needed(self, names: Sequence[str], condition: pc.Expression | None) -> list[str]:
        """Return the columns to read: those of the result, and those of a condition."""
        needed = [name for name in self.schema.names if name in names] or [self._table.key]
        if condition is None or _fits(condition, self.schema, needed):
            return needed
        read = [*self.schema.names]
        for name in self.schema.names:
            without = [each for each in read if each != name]
            if name not in needed and _fits(condition, self.schema, without):
                read = without
        return read

    def get_fragments(self, filter: object = None) -> Never:  # noqa: A002 - as above
        """Refuse: there are none."""
        self._not_here(filter)

    def _not_here(self, *_: object, **__: object) -> Never:
        """Refuse what nobody needs: pyarrow's own would read an empty dataset."""
        raise NotImplementedError(
            "this dataset is for DuckDB, which calls scanner(); use Table.query() for Arrow"
        )

    to_table = to_batches = head = take = count_rows = _not_here
    filter = sort_by = join = join_asof = replace_schema = _not_here


def _fits(condition: pc.Expression, schema: pa.Schema, names: Sequence[str]) -> bool:
    """Return whether a condition needs no other columns than these."""
    columns = pa.schema([schema.field(name) for name in names])
    try:
        pads.Scanner.from_batches(iter(()), schema=columns, filter=condition)
    except pa.ArrowInvalid:
        return False
    return True
