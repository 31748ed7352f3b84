"""Rows for benchmarks: a key of 16 random letters, a timestamp, a text of 50, a number."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

SCHEMA = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("ts", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("value", pa.string(), nullable=False),
        pa.field("n", pa.int64(), nullable=False),
    ]
)
_LETTERS = np.frombuffer(
    b"-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz", np.uint8
)


def rows(count: int, seed: int, step: int = 500_000) -> Iterator[pa.RecordBatch]:
    """Yield `count` random rows in batches; the same seed makes the same rows."""
    draw = np.random.default_rng(seed)
    for start in range(0, count, step):
        n = min(step, count - start)
        instants = draw.integers(1_600_000_000_000_000, 1_700_000_000_000_000, n)
        columns = [
            _texts(draw, n, 16),
            pa.array(instants, pa.timestamp("us", "UTC")),
            _texts(draw, n, 50),
            pa.array(draw.integers(0, 1 << 40, n)),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def split_points(leaves: int) -> list[str]:
    """Return keys that part random keys into `leaves` even parts; a power of two up to 4,096."""
    letters = _LETTERS.tobytes().decode()
    places = [leaf * 4096 // leaves for leaf in range(1, leaves)]
    return [letters[place // 64] + letters[place % 64] for place in places]


def _texts(draw: np.random.Generator, count: int, width: int) -> pa.Array:
    letters = _LETTERS[draw.integers(0, 64, count * width, dtype=np.uint8)]
    ends = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    return pa.Array.from_buffers(
        pa.string(), count, [None, pa.py_buffer(ends), pa.py_buffer(letters)]
    )
