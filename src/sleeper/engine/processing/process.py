"""A table's filters, aggregations and function, applied to a stream of rows in key order.

Ingest, compaction, query and export all use it, so the result does not depend on when rows are
combined (rule PRC-1). Memory is bounded by one batch, the values of one group, and the memory of
the user's function.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from sleeper.columns.type_traits import TRAITS_BY_ID
from sleeper.engine.processing.aggregations import Overflow, aggregate_rows
from sleeper.engine.processing.table_function import apply_table_function
from sleeper.model.column_types import TYPE_TRAITS
from sleeper.model.processing import AgeOff, Processing
from sleeper.model.schema import Schema

# ---------------------------------------------------------------- filters
#
# Drops rows that are too old.


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
    row = TRAITS_BY_ID[column.type.id]
    ticks_at = TYPE_TRAITS[row.kind].ticks_at
    assert ticks_at is not None  # rows age by no other field
    limit = ticks_at(limit_ms)
    instants = column.cast(row.numbers).cast(pa.int64())
    if limit < -(2**63):  # earlier than any value
        return pc.is_valid(column)
    return pc.greater(instants, pa.scalar(limit, pa.int64()))


def process(
    batches: Iterable[pa.RecordBatch | pa.Table],
    processing: Processing,
    schema: Schema,
    *,
    now_ms: int,
    overflow: Overflow = Overflow.REFUSE,
) -> Iterator[pa.RecordBatch]:
    """Apply a table's processing to a stream in key order, and yield the remaining rows.

    New rows must pass `as_counts` first. Rows that were processed before may be processed again.

    Args:
        batches: Rows in order of row keys, then sort keys. They have the fields of filters, and
            with aggregations all keys. Aggregated fields may be left out. With a function, they
            have all fields, in the schema's order.
        processing: Filters, then aggregations, then a function.
        schema: The table's.
        now_ms: The current time in milliseconds since 1970.
        overflow: What to do with a sum of decimals that does not fit its field.

    Raises:
        SchemaInvalid: a sum of decimals has more digits than its field's type, and that is refused.
        TableFunctionFailed: the function is missing, raised, or broke its contract.
    """
    kept = _record_batches(batches)
    for age_off in processing.filters:
        kept = apply_age_off(kept, age_off, now_ms)
    if processing.aggregations:
        kept = aggregate_rows(kept, processing, schema, overflow)
    if processing.function is not None:
        kept = apply_table_function(kept, processing.function, schema)
    yield from kept


def _record_batches(batches: Iterable[pa.RecordBatch | pa.Table]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for part in batch.to_batches() if isinstance(batch, pa.Table) else [batch]:
            if part.num_rows:
                yield part
