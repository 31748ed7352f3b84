"""A Parquet file in memory with some columns and a few of their pages, for pyarrow to decode.

So the look-up reader supports every encoding, nesting and codec that pyarrow supports. Pages and
schema elements are copied unchanged from the data file; only the footer is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from sleeper.columns.joined import one_array
from sleeper.lookup.parquet.compact_protocol import (
    BINARY,
    I32,
    I64,
    LIST,
    STRUCT,
    Field,
    struct_bytes,
)
from sleeper.lookup.parquet.footer import MAGIC, REQUIRED, ColumnChunk, Leaf, TopColumn
from sleeper.lookup.parquet.pages import DATA_PAGE, PLAIN, RLE, Buffer


class LeafPages(NamedTuple):
    """Some pages of one leaf.

    Attributes:
        dictionary: The bytes of the dictionary page, with header; empty if there is none.
        data: The bytes of data pages, with headers.
        value_count: Sum of the data pages' value counts.
    """

    leaf: Leaf
    chunk: ColumnChunk
    dictionary: Buffer
    data: Sequence[Buffer]
    value_count: int


class GroupPages(NamedTuple):
    """Pages of one row group that hold the same rows.

    Attributes:
        row_count: The number of these rows.
        leaves: The pages of each leaf of each column, in the order of the columns.
    """

    row_count: int
    leaves: Sequence[LeafPages]


def decode(column: TopColumn, leaves: Sequence[LeafPages], row_count: int) -> pa.Array:
    """Decode pages with `row_count` rows of one column.

    Raises:
        ValueError, OSError: pyarrow cannot decode them, or they have another number of rows.
    """
    (array,) = decode_columns([column], [GroupPages(row_count, leaves)])
    return array


def decode_columns(columns: Sequence[TopColumn], groups: Sequence[GroupPages]) -> list[pa.Array]:
    """Decode pages of several columns, and return an array for each; groups follow each other.

    Raises:
        ValueError, OSError: pyarrow cannot decode them, or they have another number of rows.
    """
    parts: list[Buffer] = [MAGIC]
    group_parts = []
    at = len(MAGIC)
    for group in groups:
        chunks, start = [], at
        for pages in group.leaves:
            data_size = sum(map(len, pages.data))
            chunks.append(_chunk_bytes(pages, at, data_size))
            parts += [pages.dictionary, *pages.data]
            at += len(pages.dictionary) + data_size
        group_parts.append(_group_bytes(chunks, at - start, group.row_count))
    row_count = sum(group.row_count for group in groups)
    footer = _footer(columns, group_parts, row_count)
    parts += [footer, len(footer).to_bytes(4, "little"), MAGIC]
    texts = [] if row_count < MANY_ROWS else _texts_in_dictionaries(columns, groups)
    return _decoded(pa.BufferReader(b"".join(parts)), row_count, len(columns), texts)


MANY_ROWS = 10_000
"""From so many rows on texts are decoded by their dictionaries: of few, that costs more calls."""


def _texts_in_dictionaries(columns: Sequence[TopColumn], groups: Sequence[GroupPages]) -> list[str]:
    """Return the flat columns of byte arrays that have dictionaries in all groups.

    pyarrow writes the bytes of each value by themselves as it decodes them. To decode the places in
    a dictionary, and then to take all values at once, costs less than half, of many rows.
    """
    found, at = list[str](), 0
    for column in columns:
        own = [group.leaves[at] for group in groups]
        at += len(column.leaves)
        if column.is_flat and all(
            pages.dictionary and pages.leaf.physical_type == _BYTE_ARRAY for pages in own
        ):
            found.append(column.name)
    return found


def decode_byte_arrays(data: bytes, count: int) -> pa.Array:
    """Decode `count` PLAIN byte arrays that are decompressed.

    Returns:
        A binary array.

    Raises:
        ValueError, OSError: their number is different, or they do not fill `data`.
    """

    def fill(page: memoryview) -> int:
        page[:] = data
        return len(data)

    return decode_byte_arrays_from(fill, len(data), count)


def decode_byte_arrays_from(fill: Callable[[memoryview], int], size: int, count: int) -> pa.Array:
    """Decode `count` PLAIN byte arrays that `fill` writes into memory, and that fill `size` bytes.

    Args:
        fill: Writes the bytes, and returns how many.
        size: How many it must be.
        count: How many byte arrays they are.

    Returns:
        A binary array.

    Raises:
        ValueError, OSError: their number is different, or they do not fill the bytes.
    """
    about: list[Field] = [(1, I32, count), (2, I32, PLAIN), (3, I32, RLE), (4, I32, RLE)]
    header = struct_bytes([(1, I32, DATA_PAGE), (2, I32, size), (3, I32, size), (5, STRUCT, about)])
    chunk: list[Field] = [
        (1, I32, _BYTE_ARRAY),
        (2, LIST, (I32, [PLAIN])),
        (3, LIST, (BINARY, [_VALUES.name.encode()])),
        (4, I32, 0),
        (5, I64, count),
        (6, I64, size),
        (7, I64, len(header) + size),
        (9, I64, len(MAGIC)),
    ]
    chunks = [struct_bytes([(2, I64, 0), (3, STRUCT, chunk)])]
    footer = _footer([_VALUES], [_group_bytes(chunks, len(header) + size, count)], count)
    start, end = MAGIC + header, footer + len(footer).to_bytes(4, "little") + MAGIC
    file = pa.allocate_buffer(len(start) + size + len(end))
    view = memoryview(file).cast("B")
    view[: len(start)], view[len(start) + size :] = start, end
    if fill(view[len(start) : len(start) + size]) != size:
        raise ValueError("a page has another size than its header says")
    (values,) = _decoded(pa.BufferReader(file), count, 1)
    # pyarrow does not report remaining bytes.
    ends = np.frombuffer(values.buffers()[1], np.int32)
    if int(ends[count]) + _PREFIX_BYTES * count != size:
        raise ValueError("a page's byte arrays do not fill it")
    return values


_BYTE_ARRAY = 6
_PREFIX_BYTES = 4
_VALUES = TopColumn(
    name="values",
    leaves=range(1),
    schema_bytes=(
        struct_bytes([(1, I32, _BYTE_ARRAY), (3, I32, REQUIRED), (4, BINARY, b"values")]),
    ),
    is_flat=True,
)


def _decoded(
    source: pa.BufferReader, row_count: int, column_count: int, texts: Sequence[str] = ()
) -> list[pa.Array]:
    """Return the columns of a file, those of `texts` by their dictionaries."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - slow to import, and seldom needed

    file = pq.ParquetFile(
        source, pre_buffer=False, page_checksum_verification=False, read_dictionary=[*texts]
    )
    table = file.read(use_threads=False)
    if table.num_rows != row_count or table.num_columns != column_count:
        raise ValueError(f"pages hold {table.num_rows} rows instead of {row_count}")
    return [one_array(_of_values(column)) for column in table.columns]


def _of_values(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column without its dictionaries."""
    is_coded = pa.types.is_dictionary(column.type)
    return column.cast(column.type.value_type) if is_coded else column


def _chunk_bytes(pages: LeafPages, at: int, data_size: int) -> bytes:
    leaf, chunk, size = pages.leaf, pages.chunk, len(pages.dictionary) + data_size
    about: list[Field] = [
        (5, I64, pages.value_count),
        (6, I64, chunk.uncompressed_size),
        (7, I64, size),
        (9, I64, at + len(pages.dictionary)),
    ]
    if pages.dictionary:
        about.append((11, I64, at))
    start = _chunk_start(leaf.physical_type, chunk.encodings, leaf.path, chunk.codec)
    return start + struct_bytes(about, after=4) + b"\0"


@lru_cache(maxsize=1000)
def _chunk_start(
    physical_type: int, encodings: frozenset[int], path: tuple[str, ...], codec: int
) -> bytes:
    """Return the first bytes of a column chunk in a footer, which many chunks share."""
    about: list[Field] = [
        (1, I32, physical_type),
        (2, LIST, (I32, sorted(encodings))),
        (3, LIST, (BINARY, [name.encode() for name in path])),
        (4, I32, codec),
    ]
    chunk = struct_bytes([(2, I64, 0), (3, STRUCT, struct_bytes(about)[:-1])])
    return chunk[:-1]


def _group_bytes(chunks: Sequence[bytes], size: int, row_count: int) -> bytes:
    return struct_bytes([(1, LIST, (STRUCT, chunks)), (2, I64, size), (3, I64, row_count)])


def _footer(columns: Sequence[TopColumn], groups: Sequence[bytes], row_count: int) -> bytes:
    root = struct_bytes([(4, BINARY, b"schema"), (5, I32, len(columns))])
    elements = [element for column in columns for element in column.schema_bytes]
    return struct_bytes(
        [
            (1, I32, 2),
            (2, LIST, (STRUCT, [root, *elements])),
            (3, I64, row_count),
            (4, LIST, (STRUCT, groups)),
        ]
    )
