"""Divides batches of rows into parts of bounded size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

BATCH_ROWS_MAX: Final = 131_072
_BATCH_BYTES_MAX: Final = 32 << 20


def small_batches(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Divide a batch into parts of at most 131,072 rows or about 32 MiB, without copying."""
    by_bytes = _BATCH_BYTES_MAX * batch.num_rows // max(1, batch.nbytes)
    step = max(1, min(BATCH_ROWS_MAX, by_bytes))
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)
