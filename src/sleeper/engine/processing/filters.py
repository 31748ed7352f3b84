"""Drops rows that are too old."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from sleeper.model.processing import AgeOff

_MS_PER_DAY = 86_400_000
_US_PER_MS = 1000


def apply_age_off(
    batches: Iterator[pa.RecordBatch], age_off: AgeOff, now_ms: int
) -> Iterator[pa.RecordBatch]:
    """Keep rows whose field is not null and whose age is below the limit (rule PRC-2)."""
    for batch in batches:
        column = batch.column(age_off.field)
        kept = batch.filter(_later_than(column, now_ms - age_off.max_age_ms))
        if kept.num_rows:
            yield kept


def _later_than(column: pa.Array, limit_ms: int) -> pa.Array:
    """Return whether each time is after a limit, compared as integers; null for null."""
    if pa.types.is_date32(column.type):
        instants, limit = column.cast(pa.int32()).cast(pa.int64()), limit_ms // _MS_PER_DAY
    elif pa.types.is_timestamp(column.type):
        instants, limit = column.cast(pa.int64()), limit_ms * _US_PER_MS
    else:
        instants, limit = column, limit_ms
    if limit < -(2**63):  # earlier than any value
        return pc.is_valid(column)
    return pc.greater(instants, pa.scalar(limit, pa.int64()))
