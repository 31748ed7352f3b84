"""Concatenates small batches, for formats that store each batch separately."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa


def row_groups(batches: Iterable[pa.RecordBatch], row_count: int) -> Iterator[pa.Table]:
    """Yield tables of at least `row_count` rows, except the last; nothing is copied."""
    waiting: list[pa.RecordBatch] = []
    waiting_rows = 0
    for batch in batches:
        waiting.append(batch)
        waiting_rows += batch.num_rows
        if waiting_rows >= row_count:
            yield pa.Table.from_batches(waiting)
            waiting, waiting_rows = [], 0
    if waiting_rows:
        yield pa.Table.from_batches(waiting)
