"""A table as a LazyFrame of polars: columns and conditions are pushed down to the reader.

polars gives the condition as an expression, which it also lets us take apart: `meta.pop` returns
the inputs of an operation, and `meta.eq` compares. So an operation is known if the same operation
on the same inputs is equal to it. polars evaluates the condition on every row in any case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import polars as pl
import pyarrow as pa
from polars.io.plugins import register_io_source

from sleeper.engine.sql.scans.scanned_table import ScannedTable
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
        known = UNKNOWN if predicate is None else condition_of(predicate, table.arrow_schema)
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


def condition_of(expression: pl.Expr, arrow_schema: pa.Schema) -> Condition:
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
