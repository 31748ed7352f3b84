"""Decompresses pages of a data file that were checked: many pages by one stream of zstd.

A zstd frame that is decompressed alone costs 16 us, because pyarrow makes a new context for each:
for pages of 8 kB that is most of the time. One stream keeps its context from frame to frame. What
it returns of a PLAIN column without nulls are the values; pages of all others are decoded by
pyarrow, with headers that say that they are not compressed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from sleeper.engine.reading.page_runs import RunPages, page_sizes
from sleeper.lookup.columns import BoundColumn, DecodePath
from sleeper.lookup.parquet.footer import CODECS, VALUE_WIDTHS, ColumnChunk, Leaf
from sleeper.lookup.parquet.mini_file import decode_byte_arrays_from
from sleeper.lookup.parquet.pages import Buffer, compressed_header

# ---------------------------------------------------------------- plain columns
#
# Decodes all pages of a PLAIN column at once, without nulls.

_PLAIN_ONLY = frozenset((0, 3))  # PLAIN values; RLE is for levels, which flat required columns lack


def has_plain_pages(column: BoundColumn, leaf: Leaf, chunks: Sequence[ColumnChunk]) -> bool:
    """Return whether `decode_plain_pages` may decode chunks of a column."""
    return (
        column.plain in (DecodePath.FIXED_WIDTH, DecodePath.BYTE_ARRAYS)
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
        full_sizes, compressed = sizes
        ends = [*run.heads[1:], len(run.data)]
        data = memoryview(run.data)
        for end, length, full in zip(ends, compressed, full_sizes, strict=True):
            if length == full:
                return None
            bodies.append(data[end - length : end])
        size += sum(full_sizes)
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


# ---------------------------------------------------------------- pages of every encoding
#
# Decompresses pages, and writes headers that say so, for pyarrow to decode.

_PAGES_MIN: Final = 8
"""Fewer pages are decompressed by pyarrow: the stream costs as much as a few contexts."""

_SIZE_MAX: Final = 0.9
"""Of chunks that are hardly smaller than their values most pages are not compressed."""


def inflated(runs: Sequence[RunPages], chunks: Sequence[ColumnChunk]) -> list[list[Buffer] | None]:
    """Decompress the pages of runs, all by one stream.

    Args:
        runs: The pages, which were checked.
        chunks: The column chunk of each run.

    Returns:
        For each run headers and bodies of its pages, one after the other. None if pyarrow must
        decompress them: they are too few, have another codec, a dictionary, or headers of a rare
        form, or are hardly compressed.

    Raises:
        ValueError, OSError: the pages do not have the sizes that their headers say.
    """
    if sum(len(run.heads) for run in runs) < _PAGES_MIN:
        return [None] * len(runs)
    plans = [_data_pages(run, chunk) for run, chunk in zip(runs, chunks, strict=True)]
    every_page = [page for pages in plans if pages is not None for page in pages]
    frames = _Bodies([page.frame for page in every_page if page.size])
    size = sum(page.size for page in every_page)
    with pa.CompressedInputStream(pa.PythonFile(frames, mode="r"), "zstd") as stream:
        values = memoryview(stream.read_buffer(size))
        if len(values) != size or stream.read(1):
            raise ValueError("pages have other sizes than their headers say")
    found, at = list[list[Buffer] | None](), 0
    for pages in plans:
        if pages is None:
            found.append(None)
            continue
        parts = list[Buffer]()
        for page in pages:
            parts += [page.start, values[at : at + page.size]]
            at += page.size
        found.append(parts)
    return found


class _DataPage(NamedTuple):
    """A data page.

    Attributes:
        start: Its header, as it is if the page is not compressed, and what is not compressed.
        frame: What is compressed.
        size: Its bytes when decompressed.
    """

    start: bytes
    frame: memoryview
    size: int


def _data_pages(run: RunPages, chunk: ColumnChunk) -> list[_DataPage] | None:
    is_smaller = chunk.size < _SIZE_MAX * chunk.uncompressed_size
    if CODECS[chunk.codec] != "zstd" or len(run.dictionary) or not is_smaller:
        return None
    data, pages = memoryview(run.data), list[_DataPage]()
    for head, end in zip(run.heads, [*run.heads[1:], len(run.data)], strict=True):
        header = compressed_header(run.data, head)
        if header is None or header.end + header.compressed_size != end:
            return None
        frame = header.end + header.levels_size
        size = header.size - header.levels_size
        if not header.is_compressed or frame == end:
            frame, size = end, 0
        start = header.without_codec + data[header.end : frame]
        pages.append(_DataPage(start, data[frame:end], size))
    return pages


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
