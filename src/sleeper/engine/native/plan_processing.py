"""Filters and aggregations as SQL, where it gives exactly what they give batch by batch.

Rows age by comparison of whole numbers. Sums, minima and maxima of whole numbers, and minima and
maxima of text, bytes, dates and times are the same in both; sums wrap around. Not the same, and so
done batch by batch, are floating-point numbers (NaN, the sign of zero, the order of addition), sums
of decimals (rows may have to stay apart), maps, and the first or last row of a key (which of equal
sort keys is last).
"""

from __future__ import annotations

import pyarrow as pa

from sleeper.engine.native.column_options import plain_name
from sleeper.model.processing import AgeOff, Aggregation, Processing
from sleeper.model.schema import Schema

_INT64 = range(-(2**63), 2**63)
_INT32 = range(-(2**31), 2**31)
_MS_PER_DAY = 86_400_000
_US_PER_MS = 1000


def is_plannable(processing: Processing, arrow_schema: pa.Schema, now_ms: int) -> bool:
    """Return whether a plan gives the same rows as `process` does."""
    types = {field.name: field.type for field in arrow_schema}
    return (
        processing.function is None
        and all(_fits(each, types[each.field], now_ms) for each in processing.filters)
        and all(_is_plannable(each, types[each.field]) for each in processing.aggregations)
    )


def _is_plannable(aggregation: Aggregation, kind: pa.DataType) -> bool:
    is_ = pa.types
    match aggregation.operation:
        case "sum" | "count":
            return bool(is_.is_integer(kind))
        case "min" | "max":
            return not (is_.is_floating(kind) or is_.is_nested(kind) or is_.is_boolean(kind))
        case _:
            return False


def merge_query(
    table: str, schema: Schema, arrow_schema: pa.Schema, processing: Processing, now_ms: int
) -> str:
    """Return the query of all rows of a table in key order, filtered and aggregated.

    Its columns have plain names.

    Args:
        table: The table's name in DataFusion.
        schema: The schema.
        arrow_schema: The same for Arrow.
        processing: What `is_plannable`.
        now_ms: The present, in milliseconds since 1970, for filters by age.
    """
    by_field = {each.field: each for each in processing.aggregations}
    columns = [
        f"{_value(field, by_field.get(field.name))} AS {plain_name(number)}"
        for number, field in enumerate(arrow_schema)
    ]
    keys = [quoted(name) for name in schema.key_names]
    parts = [f"SELECT {', '.join(columns)} FROM {table}"]  # noqa: S608 - names are quoted
    if processing.filters:
        conditions = [
            _is_young(each, arrow_schema.field(each.field).type, now_ms)
            for each in processing.filters
        ]
        parts.append(f"WHERE {' AND '.join(conditions)}")
    if processing.aggregations:
        parts.append(f"GROUP BY {', '.join(keys)}")
    parts.append(f"ORDER BY {', '.join(f'{key} ASC NULLS LAST' for key in keys)}")
    return " ".join(parts)


def quoted(name: str) -> str:
    """Return a column's name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def _value(field: pa.Field, aggregation: Aggregation | None) -> str:
    column = quoted(field.name)
    if aggregation is None:
        return column
    kind = field.type
    if aggregation.operation in ("min", "max"):
        # No value is null, but the type of the result says that it may be.
        return f"coalesce({aggregation.operation}({column}), {_some_value(kind)})"
    total = f"coalesce(sum({column}), 0)"
    if field.nullable:  # a count; rows that were written before counting may have nulls
        total = f"sum(coalesce({column}, 0))"
    if kind.bit_width == 64:
        return total
    return f"arrow_cast(({total} << 32) >> 32, 'Int32')"  # wraps around as 32 bits do


def _some_value(kind: pa.DataType) -> str:
    is_ = pa.types
    if is_.is_string(kind):
        return "''"
    if is_.is_binary(kind):
        return "arrow_cast('', 'Binary')"
    return f"arrow_cast(0, '{_arrow_name(kind)}')"


def _arrow_name(kind: pa.DataType) -> str:
    is_ = pa.types
    if is_.is_decimal(kind):
        return f"Decimal128({kind.precision}, {kind.scale})"
    if is_.is_timestamp(kind):
        zone = f'Some("{kind.tz}")' if kind.tz else "None"
        return f"Timestamp(Microsecond, {zone})"
    return "Date32" if is_.is_date32(kind) else f"Int{kind.bit_width}"


def _is_young(age_off: AgeOff, kind: pa.DataType, now_ms: int) -> str:
    """Return the condition that a time is after a limit; it is not true for null.

    A plain comparison would leave out row groups by their statistics, and rows could not be counted
    that were read.
    """
    column, whole = quoted(age_off.field), "Int32" if pa.types.is_date32(kind) else "Int64"
    limit = _limit(age_off, kind, now_ms)
    value = f"arrow_cast(arrow_cast({limit}, '{whole}'), '{_arrow_name(kind)}')"
    return f"greatest({column}, {value}) <> {value}"


def _limit(age_off: AgeOff, kind: pa.DataType, now_ms: int) -> int:
    """Return the last time that is too old, as a number of the field's type."""
    limit = now_ms - age_off.max_age_ms
    if pa.types.is_date32(kind):
        return limit // _MS_PER_DAY
    return limit * _US_PER_MS if pa.types.is_timestamp(kind) else limit


def _fits(age_off: AgeOff, kind: pa.DataType, now_ms: int) -> bool:
    """Return whether the limit is a value of the field."""
    numbers = _INT32 if pa.types.is_date32(kind) else _INT64
    return _limit(age_off, kind, now_ms) in numbers
