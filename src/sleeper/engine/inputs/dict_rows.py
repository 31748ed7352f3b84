"""Converts rows given as Python dicts to Arrow, a few thousand at a time.

pyarrow fills missing fields with null and ignores unknown ones. Here rows are refused for both,
and for each value that `python_array` refuses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa

from sleeper.columns.python_values import MISFITS, first_misfit, python_array
from sleeper.engine.arrow_schema import check_columns
from sleeper.errors import InputSchemaMismatch

_ROWS_AT_ONCE = 10_000


def batches_of_dicts(
    rows: Iterable[Mapping[str, Any]],
    arrow_schema: pa.Schema,
    origin: str,
    *,
    ignore_extra_fields: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield rows as batches of `arrow_schema`. A field whose value is None is null.

    Args:
        rows: The rows.
        arrow_schema: The table's schema.
        origin: Their name in messages.
        ignore_extra_fields: True to drop fields that the table does not have.

    Raises:
        InputSchemaMismatch: a row has a field that the table does not have and that is not dropped,
            lacks a required one, or has a value that does not fit its field. Rows are counted from
            0. Of fields to drop, one has a name similar to a field that no row near it has.
    """
    remaining = iter(rows)
    done = 0
    while chunk := list(islice(remaining, _ROWS_AT_ONCE)):
        _check_fields(chunk, arrow_schema, origin, done, ignore_extra_fields)
        arrays = [
            field_array([row.get(field.name) for row in chunk], field, origin, done)
            for field in arrow_schema
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=arrow_schema)
        done += len(chunk)


def _check_fields(
    chunk: Sequence[Mapping[str, Any]],
    arrow_schema: pa.Schema,
    origin: str,
    done: int,
    ignore_extra: bool,  # noqa: FBT001 - given by position, to nobody else
) -> None:
    required = {field.name for field in arrow_schema if not field.nullable}
    known = set(arrow_schema.names)
    try:
        if all(required <= row.keys() <= known for row in chunk):
            return
        if ignore_extra and all(required <= row.keys() for row in chunk):
            _refuse_misspelt(chunk, arrow_schema, origin)
            return
    except AttributeError:
        pass
    for place, row in enumerate(chunk, done):
        if not isinstance(row, Mapping):
            raise InputSchemaMismatch(f"row {place} of {origin} is not a dict: {row!r}")
        unknown = [name for name in row if name not in known]
        if unknown and not ignore_extra:
            raise InputSchemaMismatch(
                f"row {place} of {origin} has fields {unknown} that the table does not have; "
                f"it has {arrow_schema.names}. Leave them out, or give ignore_extra_columns=True"
            )
        if missing := [name for name in arrow_schema.names if name in required - row.keys()]:
            raise InputSchemaMismatch(f"row {place} of {origin} lacks required fields {missing}")


def _refuse_misspelt(
    chunk: Sequence[Mapping[str, Any]], arrow_schema: pa.Schema, origin: str
) -> None:
    """Raise an error if a field to drop has a name similar to one that no row has."""
    names = list(dict.fromkeys(str(name) for row in chunk for name in row))
    check_columns(
        pa.schema([(name, pa.null()) for name in names]),
        arrow_schema,
        ignore_extra_columns=True,
        origin=origin,
    )


def field_array(values: Sequence[Any], field: pa.Field, origin: str, done: int) -> pa.Array:
    """Return the values of one field as an array of its type; `done` rows came before them.

    Raises:
        InputSchemaMismatch: a value does not fit; the message names row, value and reason.
    """
    try:
        return python_array(values, field.type)
    except MISFITS:
        place, value, reason = first_misfit(values, field.type)
        raise InputSchemaMismatch(
            f"row {done + place} of {origin}: {value!r} does not fit field {field.name!r} of "
            f"{field.type}: {reason}. Nothing was ingested"
        ) from None
