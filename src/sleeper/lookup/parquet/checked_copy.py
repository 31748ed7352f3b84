"""Copies a Parquet file of another writer, so that it becomes one of ours.

Pages get checksums in their headers, Bloom filters move behind them, columns get their names, and
the footer says how rows are sorted. What pages, indexes and statistics hold is copied unchanged.
One column chunk is in memory, and what is behind the pages.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import pairwise
from typing import Any
from zlib import crc32

import numpy as np

from sleeper.lookup.parquet.compact_protocol import (
    BINARY,
    FALSE,
    I32,
    I64,
    LIST,
    STRUCT,
    Field,
    read_fields,
    struct_bytes,
)
from sleeper.lookup.parquet.file_end import ReadRanges
from sleeper.lookup.parquet.footer import (
    MAGIC,
    TAIL_BYTES,
    ColumnChunk,
    Footer,
    footer_length,
    read_footer,
)
from sleeper.lookup.parquet.page_index import Ints, PageLocations, read_offset_index
from sleeper.lookup.parquet.sealed_output import SealedOutput
from sleeper.value_classes import dataclass

_NUMBER = 0x15  # the head of an I32 field whose number is one more than that of the field before


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLabels:
    """What the copy's footer says of the whole file.

    Attributes:
        schema: The elements of the schema, from the root on, as structs.
        metadata: Keys and values.
        sorted_columns: Number of leading columns by which rows are sorted, ascending.
    """

    schema: Sequence[Sequence[Field]]
    metadata: Sequence[tuple[bytes, bytes]]
    sorted_columns: int


class CheckedCopy:
    """A copy of one file; call `write_pages`, then `write_end`.

    Args:
        read: Reads the file.
        file_size: Its length.
        output: Where the copy goes.

    Attributes:
        footer: The file's.
        fields: The same, as structs.

    Raises:
        ValueError: the file is damaged, or has pages of an unknown kind.
    """

    def __init__(self, read: ReadRanges, file_size: int, output: SealedOutput) -> None:
        (tail,) = read([(file_size - TAIL_BYTES, TAIL_BYTES)])
        length = footer_length(tail, file_size)
        start = file_size - TAIL_BYTES - length
        (data,) = read([(start, length)])
        self.footer: Footer = read_footer(data, start)
        self.fields = {number: value for number, _, value in read_fields(data)[0]}
        self._read = read
        self._output = output
        self._moved: list[_MovedChunk] = []

    def locations(self, group: int) -> list[PageLocations]:
        """Return the places of the pages of all columns of a row group, in the file."""
        chunks = self.footer.chunks[group]
        places = [chunk.offset_index for chunk in chunks]
        if None in places:
            raise ValueError("a column has no offset index")
        blobs = self._read([place for place in places if place is not None])
        return [read_offset_index(blob, self.footer.row_counts[group]) for blob in blobs]

    def write_pages(self) -> None:
        """Copy all pages, each with a checksum."""
        self._output.write(MAGIC)
        for group, chunks in enumerate(self.footer.chunks):
            for chunk, pages in zip(chunks, self.locations(group), strict=True):
                self._moved.append(self._copied(chunk, pages))

    def write_end(self, labels: FileLabels) -> None:
        """Write Bloom filters, page indexes and footer."""
        chunks = [chunk for group in self.footer.chunks for chunk in group]
        filters = self._written(self._blobs([chunk.bloom_filter for chunk in chunks]))
        columns = self._written(self._blobs([chunk.column_index for chunk in chunks]))
        offsets = self._written(_offset_indexes(self._moved))
        places = list(zip(self._moved, filters, columns, offsets, strict=True))
        footer = self._footer(places, labels)
        self._output.write(footer)
        self._output.write(len(footer).to_bytes(4, "little") + MAGIC)

    def _copied(self, chunk: ColumnChunk, pages: PageLocations) -> _MovedChunk:
        (data,) = self._read([(chunk.offset, chunk.size)])
        view, start = memoryview(data), self._output.tell()
        borders = [*(pages.offsets - chunk.offset).tolist(), chunk.size]
        if borders[0]:  # a dictionary page
            borders.insert(0, 0)
        parts: list[bytes | memoryview] = []
        for at, end in pairwise(borders):
            parts += _checked_page(view, at, end)
        self._output.write_all(parts)
        sizes = np.fromiter(map(len, parts), np.int64, len(parts)).reshape(-1, 2).sum(axis=1)
        moved = start + np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        dictionary = len(moved) - 1 - len(pages.offsets)
        return _MovedChunk(start, moved[dictionary:], pages.first_rows[:-1], dictionary)

    def _blobs(self, places: Sequence[tuple[int, int] | None]) -> list[bytes]:
        found = iter(self._read([place for place in places if place is not None]))
        return [b"" if place is None else next(found) for place in places]

    def _written(self, blobs: Sequence[bytes]) -> list[tuple[int, int]]:
        """Write parts of the end, and return their places."""
        places = []
        for blob in blobs:
            places.append((self._output.tell(), len(blob)))
            if blob:
                self._output.write(blob)
        return places

    def _footer(self, places: Sequence[_Places], labels: FileLabels) -> bytes:
        _, groups = self.fields[4]
        width = len(self.footer.leaves)
        paths = _leaf_paths(labels.schema)
        sorting = [
            [(1, I32, place), (2, FALSE, False), (3, FALSE, False)]
            for place in range(labels.sorted_columns)
        ]
        written = [
            _group_fields(group, places[number * width : (number + 1) * width], paths, sorting)
            for number, group in enumerate(groups)
        ]
        metadata = [[(1, BINARY, key), (2, BINARY, value)] for key, value in labels.metadata]
        fields: list[Field] = [
            (1, I32, self.fields[1]),
            (2, LIST, (STRUCT, labels.schema)),
            (3, I64, self.fields[3]),
            (4, LIST, (STRUCT, written)),
            (5, LIST, (STRUCT, metadata)),
            (6, BINARY, self.fields[6]),
        ]
        if 7 in self.fields:
            fields.append((7, LIST, self.fields[7]))
        return struct_bytes(fields)


@dataclass(frozen=True, slots=True)
class _MovedChunk:
    """A column chunk in the copy.

    Attributes:
        start: Where it begins.
        borders: Where its data pages begin, and its end.
        first_rows: The first row of each.
        dictionary: 1 if a dictionary page comes first, else 0.
    """

    start: int
    borders: Ints
    first_rows: Ints
    dictionary: int


_Places = tuple[_MovedChunk, tuple[int, int], tuple[int, int], tuple[int, int]]


def _checked_page(data: memoryview, at: int, end: int) -> tuple[bytes, memoryview]:
    """Return the header of a page, with the checksum of its body, and the body.

    A checksum is field 4. The fields before it are kind and two sizes; the one after it is the
    struct of its kind, whose head has the distance of field numbers.
    """
    place = at + 3
    while data[place] > 127:
        place += 1
    size, shift, inserted = 0, 0, place + 2
    while (byte := data[inserted]) > 127:
        size |= (byte & 127) << shift
        inserted += 1
        shift += 7
    size = (size | byte << shift) >> 1
    inserted += 1
    head, start = data[inserted], end - size
    if not (data[at] == data[at + 2] == data[place + 1] == _NUMBER and head in _KINDS):
        raise ValueError("a page has a header of an unknown form")
    if start <= inserted:
        raise ValueError("a page is larger than its page index says")
    body = data[start:end]
    number = crc32(body)
    number = (number << 1) ^ (-(number >> 31) & 0x1FFFFFFFF)  # as a signed number, zigzag
    number &= 0xFFFFFFFF
    checksum = _CHECKSUM.pack(
        _NUMBER,
        number & 127 | 128,
        number >> 7 & 127 | 128,
        number >> 14 & 127 | 128,
        number >> 21 & 127 | 128,
        number >> 28,
        _KINDS[head],
    )
    return b"".join((data[at:inserted], checksum, data[inserted + 1 : start])), body


_CHECKSUM = struct.Struct("7B")  # head of field 4, five bytes of a number, head of the next field
_KINDS = {old: old - 0x10 for old in (0x2C, 0x4C, 0x5C)}
"""The heads of the structs of data pages, dictionary pages and data pages of version 2, directly
after field 3, and what they become after field 4."""


def _offset_indexes(chunks: Sequence[_MovedChunk]) -> list[bytes]:
    counts = [len(chunk.first_rows) for chunk in chunks]
    if not counts:
        return []
    offsets = np.concatenate([chunk.borders[:-1] for chunk in chunks])
    sizes = np.concatenate([np.diff(chunk.borders) for chunk in chunks])
    rows = np.concatenate([chunk.first_rows for chunk in chunks])
    data, ends = _structs_of_numbers((0x16, offsets), (0x15, sizes), (0x16, rows))
    found, page = [], 0
    for count in counts:
        start = int(ends[page - 1]) if page else 0
        page += count
        head = struct_bytes([(1, LIST, (STRUCT, [b""] * count))])[:-1]
        found.append(head + data[start : int(ends[page - 1])] + b"\0")
    return found


def _structs_of_numbers(*fields: tuple[int, Ints]) -> tuple[bytes, Ints]:
    """Return many structs of numbers that are not negative, one after the other, and their ends.

    Args:
        fields: For each field its head, and its values in all structs.
    """
    count = len(fields[0][1])
    columns, present = [], []
    for head, values in fields:
        columns.append(np.full(count, head, np.uint8))
        present.append(np.ones(count, np.bool_))
        rest, first = values.astype(np.uint64) << np.uint64(1), True
        while first or rest.any():
            present.append(np.ones(count, np.bool_) if first else rest > 0)
            low, rest = (rest & np.uint64(127)).astype(np.uint8), rest >> np.uint64(7)
            columns.append(low | ((rest > 0).astype(np.uint8) << np.uint8(7)))
            first = False
    columns.append(np.zeros(count, np.uint8))
    present.append(np.ones(count, np.bool_))
    shown = np.stack(present, axis=1)
    data = np.stack(columns, axis=1)[shown].tobytes()
    return data, np.cumsum(shown.sum(axis=1))


def _leaf_paths(schema: Sequence[Sequence[Field]]) -> list[list[bytes]]:
    """Return the path of each leaf of a schema, without the root."""
    elements = [{number: value for number, _, value in element} for element in schema]
    paths: list[list[bytes]] = []

    def walk(at: int, above: list[bytes]) -> int:
        element = elements[at]
        path = [*above, element[4]]
        if not element.get(5):
            paths.append(path)
            return at + 1
        at += 1
        for _ in range(element[5]):
            at = walk(at, path)
        return at

    at = 1
    for _ in range(elements[0].get(5, 0)):
        at = walk(at, [])
    return paths


def _group_fields(
    group: Sequence[Field],
    places: Sequence[_Places],
    paths: Sequence[list[bytes]],
    sorting: Any,
) -> list[Field]:
    """Return a row group of the footer, with the places of the copy."""
    fields = {number: value for number, _, value in group}
    _, columns = fields[1]
    chunks = [
        _column_fields(column, place, path)
        for column, place, path in zip(columns, places, paths, strict=True)
    ]
    start = places[0][0].start
    added = sum(_added(column, place[0]) for column, place in zip(columns, places, strict=True))
    end = int(places[-1][0].borders[-1])
    return [
        (1, LIST, (STRUCT, chunks)),
        (2, I64, fields[2] + added),
        (3, I64, fields[3]),
        (4, LIST, (STRUCT, sorting)),
        (5, I64, start),
        (6, I64, end - start),
    ]


def _about(column: Sequence[Field]) -> list[Field]:
    (about,) = (value for number, _, value in column if number == 3)
    return list(about)


def _added(column: Sequence[Field], moved: _MovedChunk) -> int:
    """Return by how many bytes a chunk grew."""
    (before,) = (value for number, _, value in _about(column) if number == 7)
    return int(moved.borders[-1]) - moved.start - int(before)


def _column_fields(column: Sequence[Field], place: _Places, path: list[bytes]) -> list[Field]:
    """Return a column chunk of the footer, with the places of the copy."""
    moved, bloom_filter, column_index, offset_index = place
    added = _added(column, moved)
    about: list[Field] = []
    for number, kind, value in _about(column):
        if number == 3:
            about.append((number, kind, (BINARY, path)))
        elif number in (6, 7):
            about.append((number, kind, value + added))
        elif number == 9:
            about.append((number, kind, int(moved.borders[0])))
        elif number not in (11, 14, 15):
            about.append((number, kind, value))
    if moved.dictionary:
        about.append((11, I64, moved.start))
    if bloom_filter[1]:
        about += [(14, I64, bloom_filter[0]), (15, I32, bloom_filter[1])]
    about.sort(key=lambda field: field[0])
    fields: list[Field] = [(2, I64, 0), (3, STRUCT, about)]
    fields += [(4, I64, offset_index[0]), (5, I32, offset_index[1])]
    if column_index[1]:
        fields += [(6, I64, column_index[0]), (7, I32, column_index[1])]
    return fields
