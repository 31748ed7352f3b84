"""Decodes all pages of a PLAIN column at once, without nulls: decompressed by one zstd stream.

A zstd frame that is decompressed alone costs 16 us, because pyarrow makes a new context for each:
for pages of 8 kB that is most of the time. One stream keeps its context from frame to frame.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from sleeper.engine.scan.page_runs import RunPages
from sleeper.engine.scan.page_sizes import page_sizes
from sleeper.lookup.parquet.footer import CODECS, VALUE_WIDTHS, ColumnChunk, Leaf
from sleeper.lookup.parquet.mini_file import decode_byte_arrays_from
from sleeper.lookup.table_columns import BoundColumn, DecodePath

_PLAIN_ONLY = frozenset((0, 3))  # PLAIN values; RLE is for levels, which flat required columns lack


def has_plain_pages(column: BoundColumn, leaf: Leaf, chunks: Sequence[ColumnChunk]) -> bool:
    """Return whether `decode_plain_pages` may decode chunks of a column."""
    return (
        column.plain is not DecodePath.BY_PYARROW
        and not leaf.definition_max
        and all(
            CODECS[chunk.codec] == "zstd" and chunk.encodings <= _PLAIN_ONLY for chunk in chunks
        )
    )


def decode_plain_pages(
    column: BoundColumn, leaf: Leaf, runs: Sequence[RunPages], row_count: int
) -> pa.Array | None:
    """Return the values of all runs, one after the other.

    Args:
        column: The column.
        leaf: Its only leaf.
        runs: Its pages, which were checked.
        row_count: Their rows.

    Returns:
        None if a header has a rare form, or a page is not compressed: then pyarrow must decode.

    Raises:
        ValueError, OSError: the pages hold another number of values.
    """
    bodies = list[memoryview]()
    size = 0
    for run in runs:
        sizes = page_sizes(run.data, run.heads)
        if sizes is None:
            return None
        inflated, compressed = sizes
        ends = [*run.heads[1:], len(run.data)]
        data = memoryview(run.data)
        for end, length, full in zip(ends, compressed, inflated, strict=True):
            if length == full:
                return None
            bodies.append(data[end - length : end])
        size += sum(inflated)
    with pa.CompressedInputStream(pa.PythonFile(_Bodies(bodies), mode="r"), "zstd") as stream:
        if column.plain is DecodePath.BYTE_ARRAYS:
            found = decode_byte_arrays_from(stream.readinto, size, row_count)
            buffers = found.buffers()
        else:
            buffers = [None, stream.read_buffer(size)]
            if len(buffers[1]) != row_count * VALUE_WIDTHS[leaf.physical_type]:
                raise ValueError(f"column {column.name!r} has another number of values than rows")
        if stream.read(1):
            raise ValueError(f"column {column.name!r} has pages of other sizes than their headers")
    return pa.Array.from_buffers(column.arrow_type, row_count, buffers)


class _Bodies:
    """A file for pyarrow: the bodies of pages, one after the other. They are not all joined."""

    closed = False

    def __init__(self, bodies: Sequence[memoryview]) -> None:
        self._bodies = iter(bodies)
        self._rest = memoryview(b"")

    def read(self, size: int) -> bytes:
        """Return the next bytes: `size` of them, or fewer at the end."""
        parts = [self._rest[:size]]
        self._rest, left = self._rest[size:], size - len(parts[0])
        while left and (body := next(self._bodies, None)) is not None:
            if len(body) > left:
                self._rest, body = body[left:], body[:left]
            parts.append(body)
            left -= len(body)
        return b"".join(parts)

    def close(self) -> None:
        """Do nothing: the pages are in memory."""
