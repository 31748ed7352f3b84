"""A Parquet file in memory with one column and a few of its pages, for pyarrow to decode.

So the look-up reader supports every encoding, nesting and codec that pyarrow supports. Pages and
schema elements are copied unchanged from the data file; only the footer is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

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
from sleeper.value_classes import dataclass


@dataclass(frozen=True, slots=True)
class LeafPages:
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


def decode(column: TopColumn, leaves: Sequence[LeafPages], row_count: int) -> pa.Array:
    """Decode pages with `row_count` rows of one column.

    Raises:
        ValueError, OSError: pyarrow cannot decode them, or they have another number of rows.
    """
    parts: list[Buffer] = [MAGIC]
    chunks = []
    at = len(MAGIC)
    for pages in leaves:
        data_size = sum(map(len, pages.data))
        chunks.append(_chunk_fields(pages, at, data_size))
        parts += [pages.dictionary, *pages.data]
        at += len(pages.dictionary) + data_size
    footer = _footer(column, chunks, row_count, at - len(MAGIC))
    parts += [footer, len(footer).to_bytes(4, "little"), MAGIC]
    return _decoded(parts, row_count)


def decode_byte_arrays(data: bytes, count: int) -> pa.Array:
    """Decode `count` PLAIN byte arrays that are decompressed.

    Returns:
        A binary array.

    Raises:
        ValueError, OSError: their number is different, or they do not fill `data`.
    """
    about: list[Field] = [(1, I32, count), (2, I32, PLAIN), (3, I32, RLE), (4, I32, RLE)]
    size = len(data)
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
    chunks = [[(2, I64, 0), (3, STRUCT, chunk)]]
    footer = _footer(_VALUES, chunks, count, len(header) + size)
    parts = [MAGIC, header, data, footer, len(footer).to_bytes(4, "little"), MAGIC]
    values = _decoded(parts, count)
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


def _decoded(parts: Sequence[Buffer], row_count: int) -> pa.Array:
    import pyarrow.parquet as pq  # noqa: PLC0415 - slow to import, and seldom needed

    source = pa.BufferReader(b"".join(parts))
    file = pq.ParquetFile(source, pre_buffer=False, page_checksum_verification=False)
    table = file.read(use_threads=False)
    if table.num_rows != row_count or table.num_columns != 1:
        raise ValueError(f"pages hold {table.num_rows} rows instead of {row_count}")
    return one_array(table.column(0))


def one_array(values: pa.ChunkedArray) -> pa.Array:
    """Return the chunks as one array."""
    return values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()


def _chunk_fields(pages: LeafPages, at: int, data_size: int) -> list[Field]:
    size = len(pages.dictionary) + data_size
    about: list[Field] = [
        (1, I32, pages.leaf.physical_type),
        (2, LIST, (I32, sorted(pages.chunk.encodings))),
        (3, LIST, (BINARY, [name.encode() for name in pages.leaf.path])),
        (4, I32, pages.chunk.codec),
        (5, I64, pages.value_count),
        (6, I64, pages.chunk.uncompressed_size),
        (7, I64, size),
        (9, I64, at + len(pages.dictionary)),
    ]
    if pages.dictionary:
        about.append((11, I64, at))
    return [(2, I64, 0), (3, STRUCT, about)]


def _footer(column: TopColumn, chunks: list[Any], row_count: int, size: int) -> bytes:
    root = struct_bytes([(4, BINARY, b"schema"), (5, I32, 1)])
    group: list[Field] = [(1, LIST, (STRUCT, chunks)), (2, I64, size), (3, I64, row_count)]
    return struct_bytes(
        [
            (1, I32, 2),
            (2, LIST, (STRUCT, [root, *column.schema_bytes])),
            (3, I64, row_count),
            (4, LIST, (STRUCT, [group])),
        ]
    )
