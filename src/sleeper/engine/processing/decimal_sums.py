"""Sums of decimals: exact while rows are combined, and limited to the field's type at the end.

Rows of several files are combined long after they were written, so a sum that is too large cannot
always be refused, and reads must not fail because of it (docs/decisions, 0036).
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from decimal import Decimal
from enum import Enum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.errors import SchemaInvalid

_log = logging.getLogger(__name__)

_DIGITS = 76  # of Arrow's largest decimals; fields have 38 at most


class Overflow(Enum):
    """What to do with a sum of decimals that has more digits than its field's type.

    Attributes:
        REFUSE: Raise an error. For new rows.
        KEEP_APART: Do not combine the rows, so that nothing is lost. For rows that are rewritten.
        LIMIT: Return the nearest value of the type, and log a warning. For queries.
    """

    REFUSE = "refuse"
    KEEP_APART = "keep apart"
    LIMIT = "limit"


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
                "field has more digits, and load it from the sources of this one.",
                field.name,
                field.type,
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
