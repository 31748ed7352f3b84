"""A Parquet file's footer: its columns, its row groups, and the places of their chunks and indexes.

A footer is checked for consistency before it is used: chunks must be inside the file and not
overlap, and counts must add up. Source: parquet-format, parquet.thrift (FileMetaData).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from sleeper.lookup.parquet.compact_protocol import (
    LIST,
    STRUCT,
    read_list_header,
    read_struct,
    read_varint,
)

MAGIC = b"PAR1"
TAIL_BYTES = 8
"""A file ends with the footer's length (four bytes, little-endian) and the magic."""

REQUIRED, OPTIONAL, REPEATED = 0, 1, 2
_FIELD_ID = 9
"""Parquet's number of the id in a schema element."""

DICTIONARY_ENCODINGS = frozenset((2, 8))
VALUE_WIDTHS = {1: 4, 2: 8, 4: 4, 5: 8}
"""Bytes of a PLAIN value of INT32, INT64, FLOAT and DOUBLE, by physical type."""

NOT_COMPRESSED = 0
CODECS = {
    NOT_COMPRESSED: None,
    1: "snappy",
    2: "gzip",
    4: "brotli",
    5: "lz4",
    6: "zstd",
    7: "lz4_raw",
}

DEPTH_MAX = 100
"""Columns within columns that a file may have, as pyarrow has it."""

COLUMN_CHUNK_BYTES = 1500
"""Memory of one `ColumnChunk` in Python, for the size of the cache (measured: 1.1 to 1.4
kB)."""


class Leaf(NamedTuple):
    """One physical column, as the file's schema describes it.

    Attributes:
        path: Names from the top-level column down.
        physical_type: 0 BOOLEAN, 1 INT32, 2 INT64, 3 INT96, 4 FLOAT, 5 DOUBLE, 6 BYTE_ARRAY, 7
            FIXED.
        repetition_max, definition_max: Largest levels; 0 and 0 mean flat and required.
        element: The schema element's fields, by Thrift id.
    """

    path: tuple[str, ...]
    physical_type: int
    repetition_max: int
    definition_max: int
    element: dict[int, Any]


class TopColumn(NamedTuple):
    """One column of the table: one leaf if it is flat, several if it is a map or a struct.

    Attributes:
        leaves: Numbers of its leaves in the file.
        schema_bytes: The bytes of its schema elements in the file, one item each.
        field_id: The id of the table's field that it has; None in files without ids.
    """

    name: str
    leaves: range
    schema_bytes: tuple[bytes, ...]
    is_flat: bool
    field_id: int | None = None


class ColumnChunk(NamedTuple):
    """One leaf's pages in one row group. Offsets and sizes in bytes; 0 or None where absent.

    `bloom_filter` is also None if the writer does not record the length of its filter.
    """

    codec: int
    encodings: frozenset[int]
    value_count: int
    offset: int
    size: int
    uncompressed_size: int
    first_data_page: int
    minimum: bytes | None
    maximum: bytes | None
    offset_index: tuple[int, int] | None
    column_index: tuple[int, int] | None
    bloom_filter: tuple[int, int] | None

    @property
    def end(self) -> int:
        """The offset after its last byte."""
        return self.offset + self.size

    @property
    def may_have_dictionary(self) -> bool:
        """Whether some of its pages may need a dictionary page."""
        return not DICTIONARY_ENCODINGS.isdisjoint(self.encodings)


class Footer(NamedTuple):
    """The content of a footer.

    Attributes:
        leaves: Physical columns in schema order.
        columns: Top-level columns, by name.
        row_counts: Rows of each row group.
        chunks: For each row group, one chunk a leaf.
        bounds_ordered: Whether the statistics follow the order of the column's type.
    """

    row_count: int
    leaves: tuple[Leaf, ...]
    columns: dict[str, TopColumn]
    row_counts: tuple[int, ...]
    chunks: tuple[tuple[ColumnChunk, ...], ...]
    bounds_ordered: bool

    @property
    def size_bytes(self) -> int:
        """Its approximate size in memory."""
        return (
            2000
            + len(self.leaves) * 1500
            + len(self.chunks) * len(self.leaves) * COLUMN_CHUNK_BYTES
        )


def footer_length(tail: bytes, file_size: int) -> int:
    """Return the length of the footer, from the last bytes of a file.

    Raises:
        ValueError: the file does not end like a Parquet file.
    """
    if file_size < 12 or len(tail) < TAIL_BYTES or tail[-4:] != MAGIC:
        raise ValueError(
            "it does not end as a Parquet file does; it may be cut off or another format"
        )
    length = int.from_bytes(tail[-8:-4], "little")
    if length + TAIL_BYTES + len(MAGIC) > file_size:
        raise ValueError("its footer is longer than the file")
    return length


def read_footer(data: bytes, footer_start: int) -> Footer:
    """Parse and check a footer that starts at byte `footer_start` of its file.

    Raises:
        ValueError: it is damaged.
    """
    fields, end = read_struct(data)
    if end != len(data):
        raise ValueError("its footer has another length than it says")
    leaves, columns = _schema(data, fields[2])
    row_groups = fields.get(4, [])
    chunks = tuple(_row_group_chunks(group, leaves, footer_start) for group in row_groups)
    row_counts = tuple(group[3] for group in row_groups)
    if min(row_counts, default=0) < 0 or sum(row_counts) != fields[3]:
        raise ValueError("its row groups and its footer disagree on the number of rows")
    _check_no_overlap(chunks, footer_start)
    return Footer(
        row_count=fields[3],
        leaves=leaves,
        columns=columns,
        row_counts=row_counts,
        chunks=chunks,
        bounds_ordered=len(fields.get(7, ())) == len(leaves),
    )


def _row_group_chunks(
    group: dict[int, Any], leaves: tuple[Leaf, ...], footer_start: int
) -> tuple[ColumnChunk, ...]:
    if len(group[1]) != len(leaves):
        raise ValueError("a row group has another number of columns than the schema")
    return tuple(
        _chunk(column, leaf, group[3], footer_start)
        for column, leaf in zip(group[1], leaves, strict=True)
    )


def _chunk(column: dict[int, Any], leaf: Leaf, row_count: int, footer_start: int) -> ColumnChunk:
    about = column[3]
    name = ".".join(leaf.path)
    if about[1] != leaf.physical_type or tuple(p.decode() for p in about[3]) != leaf.path:
        raise ValueError(f"the schema and a row group disagree on column {name!r}")
    if (leaf.repetition_max == 0 and about[5] != row_count) or about[5] < row_count:
        raise ValueError(
            f"column {name!r} has another number of values than its row group has rows"
        )
    if column.get(1) is not None:
        raise ValueError(f"column {name!r} is kept in another file, which is not supported")
    if 8 in column or 9 in column:
        raise ValueError(f"column {name!r} is encrypted, which is not supported")
    first_data_page, dictionary = about[9], about.get(11)
    # Some writers write 0 if there is no dictionary page.
    offset = min(first_data_page, dictionary) if dictionary else first_data_page
    if about[4] not in CODECS:
        raise ValueError(f"column {name!r} is compressed by an unknown codec, number {about[4]}")
    if row_count == 0:  # The offsets of a chunk without pages are arbitrary.
        offset = first_data_page = len(MAGIC)
        about[7] = 0
    if offset < 4 or about[7] < 0 or about[6] < 0 or offset + about[7] > footer_start:
        raise ValueError(f"column {name!r} is outside the file")
    statistics = about.get(12) or {}
    return ColumnChunk(
        codec=about[4],
        encodings=frozenset(about[2]),
        value_count=about[5],
        offset=offset,
        size=about[7],
        uncompressed_size=about[6],
        first_data_page=first_data_page,
        minimum=statistics.get(6),
        maximum=statistics.get(5),
        offset_index=_index_place(column, 4, footer_start),
        column_index=_index_place(column, 6, footer_start),
        bloom_filter=_filter_place(about, footer_start),
    )


def _index_place(column: dict[int, Any], number: int, footer_start: int) -> tuple[int, int] | None:
    offset, length = column.get(number), column.get(number + 1)
    if not length or offset is None:
        return None
    if offset < 4 or length < 0 or offset + length > footer_start:
        raise ValueError("a page index is outside the file")
    return offset, length


def _filter_place(about: dict[int, Any], footer_start: int) -> tuple[int, int] | None:
    """Return the place of a filter. It is not checked, because only sealed filters are used."""
    offset, length = about.get(14), about.get(15)
    if not offset or not length or offset < 4 or length < 0 or offset + length > footer_start:
        return None
    return offset, length


def _check_no_overlap(chunks: tuple[tuple[ColumnChunk, ...], ...], footer_start: int) -> None:
    places = [(chunk.offset, chunk.size) for group in chunks for chunk in group if chunk.size]
    for group in chunks:
        for chunk in group:
            places += [place for place in (chunk.offset_index, chunk.column_index) if place]
    places.sort()
    end = 4
    for offset, size in places:
        if offset < end:
            raise ValueError("its column chunks or page indexes overlap")
        end = offset + size


def _schema(data: bytes, elements: list[Any]) -> tuple[tuple[Leaf, ...], dict[str, TopColumn]]:
    raw = _schema_bytes(data, len(elements))
    leaves: list[Leaf] = []
    columns: dict[str, TopColumn] = {}
    at = 1
    for _ in range(elements[0].get(5, 0)):
        first_leaf, first_element = len(leaves), at
        at = _walk(elements, at, (), 0, 0, leaves)
        name = elements[first_element][4].decode()
        flat = at == first_element + 1 and elements[first_element].get(3, REQUIRED) != REPEATED
        columns[name] = TopColumn(
            name,
            range(first_leaf, len(leaves)),
            tuple(raw[first_element:at]),
            flat,
            elements[first_element].get(_FIELD_ID),
        )
    if at != len(elements) or len(columns) != elements[0].get(5, 0):
        raise ValueError("its schema is not a tree of distinct columns")
    return tuple(leaves), columns


def _walk(
    elements: list[Any],
    at: int,
    path: tuple[str, ...],
    repetition: int,
    definition: int,
    leaves: list[Leaf],
) -> int:
    """Add the leaves under element `at`; return the number of the element after its subtree."""
    element = elements[at]
    path = (*path, element[4].decode())
    if len(path) > DEPTH_MAX:
        raise ValueError(f"its schema is nested more than {DEPTH_MAX} deep")
    kind = element.get(3, REQUIRED)
    if kind not in (REQUIRED, OPTIONAL, REPEATED):
        raise ValueError("its schema has an unknown repetition")
    repetition += kind == REPEATED
    definition += kind != REQUIRED
    children = element.get(5) or 0
    if not children:
        leaves.append(Leaf(path, element[1], repetition, definition, element))
        return at + 1
    at += 1
    for _ in range(children):
        at = _walk(elements, at, path, repetition, definition, leaves)
    return at


def _schema_bytes(data: bytes, count: int) -> list[bytes]:
    """Return the bytes of the footer's schema elements, which are copied to mini-files."""
    at = 1
    if data[0] >> 4 == 1:  # Field 1, the version, comes first in every file.
        _, at = read_varint(data, at)
    if data[at] != (1 << 4 | LIST):
        raise ValueError("its footer does not start with version and schema")
    kind, length, at = read_list_header(data, at + 1)
    if kind != STRUCT or length != count:
        raise ValueError("its footer's schema is not a list of elements")
    raw = []
    for _ in range(count):
        _, end = read_struct(data, at)
        raw.append(data[at:end])
        at = end
    return raw
