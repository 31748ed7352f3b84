"""Rows given as Python dicts, turned into Arrow a few thousand at a time.

pyarrow fills in what a dict lacks, ignores what it does not know, cuts 1.5 down to 1 where an
integer is wanted, and takes a wall clock for UTC. Rows are refused for each of these instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import pyarrow as pa

from sleeper.engine.inputs.exact_cast import castable, exact_cast
from sleeper.errors import InputSchemaMismatch

_ROWS_AT_ONCE = 10_000


def batches_of_dicts(
    rows: Iterable[Mapping[str, Any]], arrow_schema: pa.Schema, origin: str
) -> Iterator[pa.RecordBatch]:
    """Yield rows as batches of `arrow_schema`. A field whose value is None is null.

    Raises:
        InputSchemaMismatch: a row has a field that the table has not, lacks a required one, or
            has a value that does not fit its field. Rows are counted from 0.
    """
    remaining = iter(rows)
    done = 0
    while chunk := list(islice(remaining, _ROWS_AT_ONCE)):
        _check_fields(chunk, arrow_schema, origin, done)
        arrays = [_array(chunk, field, origin, done) for field in arrow_schema]
        yield pa.RecordBatch.from_arrays(arrays, schema=arrow_schema)
        done += len(chunk)


def _check_fields(
    chunk: Sequence[Mapping[str, Any]], arrow_schema: pa.Schema, origin: str, done: int
) -> None:
    required = {field.name for field in arrow_schema if not field.nullable}
    known = set(arrow_schema.names)
    try:
        if all(required <= row.keys() <= known for row in chunk):
            return
    except AttributeError:
        pass
    for place, row in enumerate(chunk, done):
        if not isinstance(row, Mapping):
            raise InputSchemaMismatch(f"row {place} of {origin} is no dict: {row!r}")
        if unknown := [name for name in row if name not in known]:
            raise InputSchemaMismatch(
                f"row {place} of {origin} has fields {unknown} that the table has not; it has "
                f"{arrow_schema.names}"
            )
        if missing := [name for name in arrow_schema.names if name in required - row.keys()]:
            raise InputSchemaMismatch(f"row {place} of {origin} lacks required fields {missing}")


def _array(chunk: Sequence[Mapping[str, Any]], field: pa.Field, origin: str, done: int) -> pa.Array:
    values = [row.get(field.name) for row in chunk]
    try:
        return _exact_array(values, field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        place, value = _first_misfit(values, field.type)
        raise InputSchemaMismatch(
            f"row {done + place} of {origin}: {value!r} does not fit field {field.name!r} of "
            f"{field.type}: {str(error).splitlines()[0]}"
        ) from None


def _exact_array(values: Sequence[Any], want: pa.DataType) -> pa.Array:
    if _is_read_loosely(want):
        found = pa.array(values)
        if not castable(found.type, want):
            raise pa.ArrowTypeError(f"{found.type} is not {want}")
        return exact_cast(found, want)
    for held, kind in _elements(values, want):
        _exact_array(held, kind)
    return pa.array(values, want)


def _is_read_loosely(want: pa.DataType) -> bool:
    """True for types into which pyarrow puts values that are not quite theirs."""
    is_ = pa.types
    return bool(is_.is_integer(want) or is_.is_date(want) or is_.is_timestamp(want))


def _elements(
    values: Sequence[Any], want: pa.DataType
) -> Iterator[tuple[Sequence[Any], pa.DataType]]:
    """What lists or maps hold, where it is of a type that is read loosely."""
    present = [value for value in values if value is not None]
    if pa.types.is_list(want) and _is_read_loosely(want.value_type):
        yield list(chain.from_iterable(present)), want.value_type
    if pa.types.is_map(want):
        pairs = [
            pair
            for value in present
            for pair in (value.items() if isinstance(value, Mapping) else value)
        ]
        for place, kind in enumerate((want.key_type, want.item_type)):
            if _is_read_loosely(kind):
                yield [pair[place] for pair in pairs], kind


def _first_misfit(values: Sequence[Any], want: pa.DataType) -> tuple[int, Any]:
    """Find the value that does not fit alone, or else the first that is not null."""
    for place, value in enumerate(values):
        try:
            _exact_array([value], want)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            return place, value
    return next(
        ((place, value) for place, value in enumerate(values) if value is not None), (0, None)
    )
