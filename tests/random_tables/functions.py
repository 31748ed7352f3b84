"""Functions of a user's own for random tables: they may drop rows, and change none."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc


def keep_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Give every row as it is, in batches of other sizes."""
    for batch in batches:
        half = batch.num_rows // 2
        yield batch.slice(0, half)
        yield batch.slice(half)


def drop_negative(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Leave out rows whose mark is below zero."""
    for batch in batches:
        yield batch.filter(pc.greater_equal(batch.column("mark"), 0))
