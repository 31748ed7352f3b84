"""Aggregates rows with equal keys to one row.

The result does not depend on when rows are combined (rule PRC-5): sums of integers wrap around in
two's complement, sums of decimals are exact (`decimal_sums`), minima and maxima use the order of
their types, maps are combined entry by entry, first and last use the order of sort keys, and a
count is stored as a number when rows are written.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.columns.type_traits import TRAITS_BY_ID
from sleeper.errors import SchemaInvalid
from sleeper.model.processing import SUMS_TOO_LARGE, Aggregation, Processing
from sleeper.model.schema import Schema

# ---------------------------------------------------------------- decimal sums
#
# Sums of decimals: exact while rows are combined, and limited to the field's type at the end.
#
# Rows of several files are combined long after they were written, so a sum that is too large
# cannot always be refused, and reads must not fail because of it (docs/decisions, 0036).

_log = logging.getLogger(__name__)

_DIGITS = 76  # of Arrow's largest decimals; fields have 38 at most


class Overflow(Enum):
    """What to do with a sum of decimals that has more digits than its field's type.

    Attributes:
        REFUSE: Raise an error. For new rows.
        KEEP_APART: Do not combine the rows, so that nothing is lost. For rows that are rewritten.
        LIMIT: Return the nearest value of the type, and log a warning. For queries of tables whose
            properties do not say otherwise.
    """

    REFUSE = "refuse"
    KEEP_APART = "keep apart"
    LIMIT = "limit"


def overflow_of_queries(processing: Processing) -> Overflow:
    """Return what a query of a table does with such sums."""
    return Overflow.REFUSE if processing.refuses_large_sums else Overflow.LIMIT


class DecimalSums:
    """The columns of a stream with sums of decimals, as wider decimals while rows are combined.

    Args:
        summed: The fields with the aggregation `sum` or `map_sum`.
        overflow: What to do with a sum that does not fit.
    """

    def __init__(self, summed: Collection[str], overflow: Overflow) -> None:
        self._summed = frozenset(summed)
        self._overflow = overflow
        self._warned = False

    def widened(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows with wider decimals, so that sums do not overflow."""
        wide = [field.with_type(self._wide_type(field)) for field in rows.schema]
        return rows if wide == [*rows.schema] else rows.cast(pa.schema(wide))

    def _wide_type(self, field: pa.Field) -> pa.DataType:
        if field.name not in self._summed:
            return field.type
        if pa.types.is_decimal(field.type):
            return pa.decimal256(_DIGITS, field.type.scale)
        if pa.types.is_map(field.type) and pa.types.is_decimal(field.type.item_type):
            item = pa.decimal256(_DIGITS, field.type.item_type.scale)
            return pa.map_(field.type.key_type, field.type.item_field.with_type(item))
        return field.type

    def kept_apart(self, united: pa.RecordBatch, schema: pa.Schema) -> Any | None:
        """Return which rows have a sum that does not fit, if their groups are to be kept apart."""
        if self._overflow is not Overflow.KEEP_APART:
            return None
        found = np.zeros(united.num_rows, dtype=bool)
        for column, field in zip(united.columns, schema, strict=True):
            if column.type != field.type:
                found |= _rows_too_large(column, field.type)
        return found if found.any() else None

    def narrowed(self, rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """Return rows with the types of the table's fields.

        Raises:
            SchemaInvalid: a sum does not fit, and `overflow` is REFUSE.
        """
        if rows.schema.types == schema.types:
            return rows
        columns = [
            column if column.type == field.type else self._narrow(_own_entries(column), field)
            for column, field in zip(rows.columns, schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _narrow(self, column: pa.Array, field: pa.Field) -> pa.Array:
        too_large = _rows_too_large(column, field.type)
        if not too_large.any():
            return column.cast(field.type)
        if self._overflow is not Overflow.LIMIT:
            raise SchemaInvalid(
                f"the sum of field {field.name!r} does not fit its type {field.type} in "
                f"{np.count_nonzero(too_large):,} rows. Its values need a type of more digits: "
                "create a table with such a field, or correct the values."
            )
        if not self._warned:
            self._warned = True
            _log.warning(
                "the sum of field %r does not fit its type %s: the limit of the type is returned "
                "instead. No row is lost: ingest rows that correct it, or create a table whose "
                "field has more digits, and load it from the sources of this one. With %s=refuse "
                "such queries are refused.",
                field.name,
                field.type,
                SUMS_TOO_LARGE,
            )
        return _limited(column, field.type)


def _own_entries(column: pa.Array) -> pa.Array:
    """Return a column whose maps share no memory with rows that a slice has left out.

    A cast converts all entries of maps that lie in memory, those of other rows too.
    """
    return column.take(pa.array(range(len(column)))) if pa.types.is_map(column.type) else column


def _rows_too_large(column: pa.Array, kind: pa.DataType) -> Any:
    """Return which rows have a value, or an entry of a map, with too many digits."""
    if not pa.types.is_map(kind):
        return _too_large(column, kind)
    offsets = column.offsets.to_numpy()
    items = column.items.slice(offsets[0], offsets[-1] - offsets[0])
    rows = np.repeat(np.arange(len(column)), np.diff(offsets))
    found = np.zeros(len(column), dtype=bool)
    found[rows[_too_large(items, kind.item_type)]] = True
    return found


def _too_large(values: pa.Array, kind: pa.DataType) -> Any:
    return pc.greater(pc.abs(values), _largest(values.type, kind)).to_numpy(zero_copy_only=False)


def _limited(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_map(kind):
        items = _limited(column.items, kind.item_type)
        return pa.MapArray.from_arrays(column.offsets, column.keys, items, type=kind)
    largest = _largest(column.type, kind)
    lower = pc.max_element_wise(column, pc.negate(largest))
    return pc.min_element_wise(lower, largest).cast(kind)


def _largest(wide: pa.DataType, kind: pa.DataType) -> pa.Scalar:
    """Return the greatest value of a decimal type, as a scalar of a wider one."""
    return pa.scalar(Decimal((0, (9,) * kind.precision, -kind.scale)), wide)


_REDUCTIONS = {"sum": np.add, "min": np.fmin, "max": np.fmax}


def as_counts(
    batches: Iterable[pa.RecordBatch], processing: Processing
) -> Iterator[pa.RecordBatch]:
    """Yield new rows with numbers in counted fields, so that `count` can sum them.

    Each value of a counted field becomes 1, a null 0. This is done once for every row, before it is
    combined with others: a second time would replace a count by 1.
    """
    counted = processing.counted_fields
    for batch in batches:
        columns = [
            pc.is_valid(column).cast(column.type) if name in counted else column
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=batch.schema) if counted else batch


def aggregate_rows(
    batches: Iterator[pa.RecordBatch], processing: Processing, schema: Schema, overflow: Overflow
) -> Iterator[pa.RecordBatch]:
    """Combine each group of rows: with equal row and sort keys, or, with first or last, row keys.

    The last group of a batch may continue in the next one, so its row is put in front of that
    batch. Combining in steps gives the same result as combining all at once.

    Raises:
        SchemaInvalid: a sum of decimals has more digits than its field's type, and `overflow`
            is REFUSE.
    """
    by_field = {aggregation.field: aggregation for aggregation in processing.aggregations}
    sums = DecimalSums(
        [each.field for each in processing.aggregations if each.operation.endswith("sum")], overflow
    )
    held: pa.RecordBatch | None = None
    narrow: pa.Schema | None = None
    for batch in batches:
        narrow = batch.schema
        known = sums.widened(_with_counts(batch, processing))
        rows = known if held is None else pa.concat_batches([held, known])
        done = _united(rows, by_field, _group_starts(rows, processing, schema), sums, narrow)
        held = done.slice(done.num_rows - 1)
        if done.num_rows > 1:
            yield sums.narrowed(done.slice(0, done.num_rows - 1), narrow)
    if held is not None and narrow is not None:
        yield sums.narrowed(held, narrow)


def _with_counts(rows: pa.RecordBatch, processing: Processing) -> pa.RecordBatch:
    """Return rows with 0 for null counts, which rows have that were written before counting."""
    counted = [name for name in processing.counted_fields if name in rows.schema.names]
    if not any(rows.column(name).null_count for name in counted):
        return rows
    columns = [
        pc.fill_null(column, 0) if name in counted else column
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


@dataclass(frozen=True, slots=True)
class _Groups:
    """The groups of rows that are combined.

    Attributes:
        starts: The index of the first row of each group, ascending.
        first, last: The indexes of the first and the last row of each group.
        kept: The row of each group that gives its keys: `first` or `last`.
    """

    starts: Any
    first: pa.Array
    last: pa.Array
    kept: pa.Array


def _group_starts(rows: pa.RecordBatch, processing: Processing, schema: Schema) -> Any:
    """Return the indexes of the first rows of groups, for rows in key order."""
    end = processing.kept_end
    names = schema.key_names if end is None else [field.name for field in schema.row_keys]
    differs = np.ones(rows.num_rows, dtype=bool)
    differs[1:] = False
    for key in (rows.column(name) for name in names):
        changed = pc.not_equal(key.slice(1), key.slice(0, len(key) - 1))
        differs[1:] |= changed.to_numpy(zero_copy_only=False)
    return np.flatnonzero(differs)


def _united(
    rows: pa.RecordBatch,
    by_field: dict[str, Aggregation],
    starts: Any,
    sums: DecimalSums,
    narrow: pa.Schema,
) -> pa.RecordBatch:
    """Return one row for each group; groups whose sums are kept apart are not combined."""
    if len(starts) == rows.num_rows:
        return rows
    groups = _groups_at(starts, rows.num_rows, by_field)
    columns = [
        _aggregate(column, by_field[name], groups) if name in by_field else column.take(groups.kept)
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
    ]
    done = pa.RecordBatch.from_arrays(columns, schema=rows.schema)
    apart = sums.kept_apart(done, narrow)
    if apart is None:
        return done
    alone = np.flatnonzero(np.repeat(apart, np.diff(starts, append=rows.num_rows)))
    return _united(rows, by_field, np.union1d(starts, alone), sums, narrow)


def _groups_at(starts: Any, row_count: int, by_field: dict[str, Aggregation]) -> _Groups:
    first = pa.array(starts)
    last = pa.array(np.append(starts[1:], row_count) - 1)
    operations = {each.operation for each in by_field.values()}
    return _Groups(starts, first, last, kept=last if "last" in operations else first)


def _aggregate(column: pa.Array, aggregation: Aggregation, groups: _Groups) -> pa.Array:
    match aggregation.operation:
        case "first":
            return column.take(groups.first)
        case "last":
            return column.take(groups.last)
        case "count":
            return _reduce(column, "sum", groups.starts)
        case operation:
            return _combined(column, operation.removeprefix("map_"), groups.starts)


def _combined(column: pa.Array, operation: str, starts: Any) -> pa.Array:
    if pa.types.is_map(column.type):
        return _aggregate_map(column, operation, starts)
    traits = TRAITS_BY_ID.get(column.type.id)
    if traits is not None and traits.numbers is not None:
        return _reduce(column, operation, starts)
    groups = {"group": pa.array(_group_of_each(starts, len(column)))}
    return _aggregate_groups(groups, column, operation).column("value").combine_chunks()


def _reduce(column: pa.Array, operation: str, starts: Any) -> pa.Array:
    """Aggregate each run of a column of numbers; NumPy wraps around where a sum overflows."""
    numbers = column.cast(TRAITS_BY_ID[column.type.id].numbers)
    values = numbers.to_numpy(zero_copy_only=False)
    with np.errstate(invalid="ignore", over="ignore"):  # the sum of both infinities is NaN
        reduced = _REDUCTIONS[operation].reduceat(values, starts, dtype=values.dtype)
    return pa.array(reduced, numbers.type).cast(column.type)


def _group_of_each(starts: Any, row_count: int) -> Any:
    """Return the index of each row's group."""
    lengths = np.diff(starts, append=row_count)
    return np.repeat(np.arange(len(starts)), lengths)


def _aggregate_map(column: pa.MapArray, operation: str, starts: Any) -> pa.Array:
    """Combine the maps of each group entry by entry; entries keep their order."""
    offsets = column.offsets.to_numpy()  # into all entries; a slice has only some of them
    keys, values = (
        entries.slice(offsets[0], offsets[-1] - offsets[0])
        for entries in (column.keys, column.items)
    )
    groups = np.repeat(_group_of_each(starts, len(column)), np.diff(offsets))
    united = _aggregate_groups({"group": pa.array(groups), "key": keys}, values, operation)
    entry_counts = np.bincount(united.column("group").to_numpy(), minlength=len(starts))
    ends = np.cumsum(entry_counts, dtype=np.int32)
    return pa.MapArray.from_arrays(
        pa.array(np.concatenate((np.zeros(1, np.int32), ends))),
        united.column("key").combine_chunks(),
        united.column("value").combine_chunks(),
        type=column.type,
    )


def _aggregate_groups(by: dict[str, pa.Array], values: pa.Array, operation: str) -> pa.Table:
    """Aggregate values by the columns `by`; groups are in the order of their first rows.

    Arrow does not guarantee the order of groups, so they are sorted by the index of the first row.
    """
    table = pa.table({**by, "value": values, "place": pa.array(np.arange(len(values)))})
    wanted = [("value", operation), ("place", "min")]
    found = table.group_by([*by], use_threads=False).aggregate(wanted)
    found = found.take(pc.sort_indices(found.column("place_min")))
    # Sums of integers have 64 bits, which wrap around if the field has 32.
    value = found.column(f"value_{operation}").cast(values.type, safe=False)
    return found.select([*by]).append_column("value", value)
