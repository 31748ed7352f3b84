"""Functions of a user's own for random tables: they change no row."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa


def keep_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Give every row as it is, in batches of other sizes."""
    for batch in batches:
        half = batch.num_rows // 2
        yield batch.slice(0, half)
        yield batch.slice(half)
