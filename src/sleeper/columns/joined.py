"""Joins what lies in pieces: the chunks of a column, and columns of texts or bytes row by row."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """Return the chunks of a column as one array; copies only if there are several."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def joined_texts(parts: Sequence[pa.Array | str]) -> pa.Array:
    """Return the texts and numbers of each row one after the other; null where one is null."""
    return _joined(parts, pa.large_string())


def joined_bytes(parts: Sequence[pa.Array | bytes]) -> pa.Array:
    """Return the bytes of each row one after the other; null where one is null."""
    return _joined(parts, pa.large_binary())


def _joined(parts: Sequence[pa.Array | str | bytes], kind: pa.DataType) -> pa.Array:
    columns = [
        pa.scalar(part, kind) if isinstance(part, str | bytes) else part.cast(kind)
        for part in parts
    ]
    return pc.binary_join_element_wise(*columns, pa.scalar("", kind))


def bytes_of(column: pa.Array) -> memoryview:
    """Return the bytes of all values of a large column, one after the other, without a copy."""
    _, ends, body = column.buffers()
    offsets = memoryview(ends).cast("q")
    first, last = offsets[column.offset], offsets[column.offset + len(column)]
    return memoryview(body or b"")[first:last]
