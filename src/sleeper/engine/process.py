"""A table's filters and aggregations, applied to a stream of rows in key order.

Ingest, compaction, query and export all do it here, so that it makes no difference when rows
meet (spec PRC-1 to PRC-5): sums wrap around as two's complement does, minima and maxima go by
the types' own order, maps are united entry by entry. Memory is bounded by one batch and the
values of one group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.errors import SchemaInvalid
from sleeper.model.processing import AgeOff, Aggregation, Processing
from sleeper.model.schema import Schema

_MS_PER_DAY = 86_400_000
_US_PER_MS = 1000
_REDUCTIONS = {"sum": np.add, "min": np.fmin, "max": np.fmax}


def process(
    batches: Iterable[pa.RecordBatch | pa.Table],
    processing: Processing,
    schema: Schema,
    *,
    now_ms: int,
) -> Iterator[pa.RecordBatch]:
    """Yield what a table's processing leaves of a stream that is in key order.

    Args:
        batches: Rows in order of row keys, then sort keys. They hold the fields that filters
            look at; with aggregations, all keys too. Aggregated fields may be left out.
        processing: Filters, then aggregations.
        schema: Says which fields are keys.
        now_ms: The present, in milliseconds since 1970.

    Raises:
        SchemaInvalid: a sum of decimals has more digits than its field's type.
    """
    kept = _record_batches(batches)
    for age_off in processing.filters:
        kept = _young(kept, age_off, now_ms)
    yield from _united(kept, processing, schema) if processing.aggregations else kept


def _record_batches(batches: Iterable[pa.RecordBatch | pa.Table]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for part in batch.to_batches() if isinstance(batch, pa.Table) else [batch]:
            if part.num_rows:
                yield part


def _young(
    batches: Iterator[pa.RecordBatch], age_off: AgeOff, now_ms: int
) -> Iterator[pa.RecordBatch]:
    """Keep rows whose field is not null and younger than the limit (spec PRC-2)."""
    for batch in batches:
        column = batch.column(age_off.field)
        kept = batch.filter(_later_than(column, now_ms - age_off.max_age_ms))
        if kept.num_rows:
            yield kept


def _later_than(column: pa.Array, limit_ms: int) -> pa.Array:
    """Whether each instant lies after a limit, compared as integers; null for null."""
    if pa.types.is_date32(column.type):
        instants, limit = column.cast(pa.int32()).cast(pa.int64()), limit_ms // _MS_PER_DAY
    elif pa.types.is_timestamp(column.type):
        instants, limit = column.cast(pa.int64()), limit_ms * _US_PER_MS
    else:
        instants, limit = column, limit_ms
    if limit < -(2**63):  # earlier than all that can be written
        return pc.is_valid(column)
    return pc.greater(instants, pa.scalar(limit, pa.int64()))


def _united(
    batches: Iterator[pa.RecordBatch], processing: Processing, schema: Schema
) -> Iterator[pa.RecordBatch]:
    """Make one row of each group of equal keys.

    The last group of a batch may go on in the next one, so its row is held back and put in
    front of it: uniting in steps gives what uniting at once would.
    """
    by_field = {aggregation.field: aggregation for aggregation in processing.aggregations}
    held: pa.RecordBatch | None = None
    for batch in batches:
        rows = batch if held is None else pa.concat_batches([held, batch])
        united = _unite(rows, by_field, schema)
        held = united.slice(united.num_rows - 1)
        if united.num_rows > 1:
            yield united.slice(0, united.num_rows - 1)
    if held is not None:
        yield held


def _unite(
    rows: pa.RecordBatch, by_field: Mapping[str, Aggregation], schema: Schema
) -> pa.RecordBatch:
    starts = _group_starts([rows.column(name) for name in schema.key_names])
    if len(starts) == rows.num_rows:
        return rows
    first_rows = pa.array(starts)
    columns = [
        _aggregate(column, by_field[name], starts) if name in by_field else column.take(first_rows)
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def _group_starts(keys: list[pa.Array]) -> Any:
    """The places where a key differs from the one before it, the first place included."""
    differs = np.ones(len(keys[0]), dtype=bool)
    differs[1:] = False
    for key in keys:
        changed = pc.not_equal(key.slice(1), key.slice(0, len(key) - 1))
        differs[1:] |= changed.to_numpy(zero_copy_only=False)
    return np.flatnonzero(differs)


def _aggregate(column: pa.Array, aggregation: Aggregation, starts: Any) -> pa.Array:
    operation = aggregation.operation.removeprefix("map_")
    try:
        if pa.types.is_map(column.type):
            return _aggregate_map(column, operation, starts)
        if _is_fixed_number(column.type):
            return _reduce(column, operation, starts)
        return _aggregate_groups(column, operation, _group_of_each(starts, len(column)))
    except pa.ArrowInvalid as error:
        raise SchemaInvalid(
            f"the {operation} of field {aggregation.field!r} does not fit its type "
            f"{column.type}: {error}. Its values need a type of more digits."
        ) from error


def _is_fixed_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_date32(kind)
    )


def _reduce(column: pa.Array, operation: str, starts: Any) -> pa.Array:
    """Aggregate each run of a column of numbers; NumPy wraps around where a sum overflows."""
    as_integers = pa.int32() if column.type.bit_width == 32 else pa.int64()
    numbers = column if pa.types.is_floating(column.type) else column.cast(as_integers)
    values = numbers.to_numpy(zero_copy_only=False)
    reduced = _REDUCTIONS[operation].reduceat(values, starts, dtype=values.dtype)
    return pa.array(reduced, numbers.type).cast(column.type)


def _group_of_each(starts: Any, row_count: int) -> Any:
    """The number of each row's group."""
    lengths = np.diff(starts, append=row_count)
    return np.repeat(np.arange(len(starts)), lengths)


def _aggregate_groups(column: pa.Array, operation: str, groups: Any) -> pa.Array:
    """Aggregate strings, bytes or decimals by the number of their group, which ascends."""
    grouped = pa.table({"group": pa.array(groups), "value": _widened(column, operation)})
    result = grouped.group_by("group", use_threads=False).aggregate([("value", operation)])
    return _narrowed(result.column(f"value_{operation}"), column.type)


def _aggregate_map(column: pa.MapArray, operation: str, starts: Any) -> pa.Array:
    """Unite the maps of each group entry by entry; entries stay in the order they came in."""
    offsets = column.offsets.to_numpy()  # into all entries, of which a slice has only some
    keys, values = (
        entries.slice(offsets[0], offsets[-1] - offsets[0])
        for entries in (column.keys, column.items)
    )
    groups = np.repeat(_group_of_each(starts, len(column)), np.diff(offsets))
    table = {"group": pa.array(groups), "key": keys, "value": _widened(values, operation)}
    grouped = pa.table(table).group_by(["group", "key"], use_threads=False)
    united = grouped.aggregate([("value", operation)])
    entry_counts = np.bincount(united.column("group").to_numpy(), minlength=len(starts))
    ends = np.cumsum(entry_counts, dtype=np.int32)
    return pa.MapArray.from_arrays(
        pa.array(np.concatenate((np.zeros(1, np.int32), ends))),
        united.column("key").combine_chunks(),
        _narrowed(united.column(f"value_{operation}"), column.type.item_type),
        type=column.type,
    )


def _widened(values: pa.Array, operation: str) -> pa.Array:
    """Give sums of decimals room, so that a sum too large is seen and not wrapped around."""
    if operation == "sum" and pa.types.is_decimal(values.type):
        return values.cast(pa.decimal256(76, values.type.scale))
    return values


def _narrowed(values: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    """Bring what was aggregated back to its field's type: decimals checked, integers wrapped."""
    return values.combine_chunks().cast(kind, safe=pa.types.is_decimal(kind))
