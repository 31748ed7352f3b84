"""A seal: checksums of a file's footer, page indexes and Bloom filters, stored in the file.

Parquet has checksums for page bodies only. A flipped bit in an index, a filter or a statistic could
hide a row silently, so our writer adds a seal. It is between the last index and the footer, where
no Parquet reader reads: indexes and filters are found by absolute offsets before it, and the footer
is found from the end of the file.

    pages | Bloom filters | column indexes | offset indexes | page sums | seal | footer | its end

    seal = payload | length of payload | CRC-32 of payload | magic

The payload is a list of little-endian CRC-32 numbers: the footer's (with its length), then for each
row group and each leaf the column index's and the offset index's, 0 where there is none.
"""

from __future__ import annotations

import logging
import struct
import zlib
from array import array
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from sleeper.lookup.parquet.footer import ColumnChunk, Footer
from sleeper.lookup.parquet.page_index import Ints, PageLocations, read_offset_indexes

SEAL_MAGIC = b"SLPRSEL1"
_END = struct.Struct("<II8s")

SEAL_BYTES_MIN = _END.size


class Seal(NamedTuple):
    """The checksums of one file.

    Attributes:
        footer: CRC of the footer and the four bytes of its length.
        parts: CRCs by (row group, leaf, 0 for the column index or 1 for the offset index), flat;
            followed by those of the filters, or none if the filters are not sealed.
    """

    footer: int
    parts: tuple[int, ...]

    def check_index(self, data: bytes, group: int, leaf: int, which: int, leaf_count: int) -> None:
        """Raise ValueError if these bytes differ from the written ones."""
        if zlib.crc32(data) != self.parts[(group * leaf_count + leaf) * 2 + which]:
            raise ValueError("a page index does not match the file's seal")

    def filters_by_chunk(self, footer: Footer) -> dict[tuple[int, int], int]:
        """Return the CRC of each sealed filter, by row group and leaf.

        Raises:
            ValueError: the footer has another number of indexes or filters than the seal.
        """
        chunks = _filtered_chunks(footer)
        index_count = 2 * len(footer.chunks) * len(footer.leaves)
        sealed = self.parts[index_count:]
        if len(self.parts) < index_count or len(sealed) not in (0, len(chunks)):
            raise ValueError("the file's seal is damaged")
        return dict(zip(chunks, sealed, strict=True)) if sealed else {}


def seal_size(before_footer: bytes) -> int:
    """Return the size of the seal at the end of these bytes; 0 if there is none."""
    if len(before_footer) < _END.size:
        return 0
    length, _, magic = _END.unpack_from(before_footer, len(before_footer) - _END.size)
    return length + _END.size if magic == SEAL_MAGIC else 0


def read_seal(data: bytes) -> Seal:
    """Parse a seal.

    Raises:
        ValueError: the seal is damaged.
    """
    length, checksum, _ = _END.unpack_from(data, len(data) - _END.size)
    payload = data[: -_END.size]
    if len(payload) != length or length < 4 or length % 4 or zlib.crc32(payload) != checksum:
        raise ValueError("the file's seal is damaged")
    footer, *parts = struct.unpack(f"<{length // 4}I", payload)
    return Seal(footer, tuple(parts))


def seal_bytes(footer: Footer, footer_start: int, tail: bytes, tail_start: int) -> bytes:
    """Return the seal for a file.

    Args:
        footer: The file's footer.
        footer_start: Where it begins in the tail.
        tail: The file's last bytes: all filters and page indexes, the footer, its length and the
            magic.
        tail_start: Where they begin in the file.

    Raises:
        ValueError: an index or a filter is before the tail.
    """
    checksums = [zlib.crc32(tail[footer_start:-4])]
    filters = [footer.chunks[group][leaf].bloom_filter for group, leaf in _filtered_chunks(footer)]
    for place in (*_index_places(footer), *filters):
        if place is None:
            checksums.append(0)
            continue
        start = place[0] - tail_start
        if start < 0:
            raise ValueError("an index or a filter is before the sealed tail")
        checksums.append(zlib.crc32(tail[start : start + place[1]]))
    payload = struct.pack(f"<{len(checksums)}I", *checksums)
    return payload + _END.pack(len(payload), zlib.crc32(payload), SEAL_MAGIC)


def _index_places(footer: Footer) -> Sequence[tuple[int, int] | None]:
    return [
        place
        for group in footer.chunks
        for chunk in group
        for place in (chunk.column_index, chunk.offset_index)
    ]


def _filtered_chunks(footer: Footer) -> list[tuple[int, int]]:
    """Return row group and leaf of each column chunk that has a filter."""
    return [
        (number, leaf)
        for number, group in enumerate(footer.chunks)
        for leaf, chunk in enumerate(group)
        if chunk.bloom_filter is not None
    ]


# ---------------------------------------------------------------- page sums
#
# Page sums: running checksums of a data file, stored in the file, so that pages can be checked
# without parsing their headers.
#
# The sum at an offset is the CRC-32 of all bytes of the file before it. A CRC can be continued
# from another one, so two sums check all bytes between their offsets with one native call, for one
# page or all pages of a column: `zlib.crc32(what was read, sum at its start) == sum at its end`.
# This includes page headers, which Parquet's own checksums do not cover.
#
#     pages | Bloom filters | column indexes | offset indexes | page sums | seal | footer | its end
#
#     page sums = sums | how many sums each column chunk has | number of sums | of chunks | magic
#
# All numbers are little-endian, of four bytes. A chunk (row group by row group, leaf by leaf) has
# a sum at its start, one at its first data page if a dictionary page precedes it, and one after
# each page. The sums themselves are not checked: a damaged sum rejects intact pages, but never
# accepts damaged ones.

PAGE_SUMS_MAGIC = b"SLPRSUM1"
SUM_BYTES = 4

PAGE_SUMS_END_BYTES = _END.size

_log = logging.getLogger(__name__)


class PageSums(NamedTuple):
    """The places of the sums of each column chunk.

    Attributes:
        offset: The file offset of the first sum.
        starts: Number of the first sum of each chunk, in file order; at the end the total number.
    """

    offset: int
    starts: Sequence[int]

    def place(self, chunk_number: int) -> tuple[int, int]:
        """Return offset and length of the sums of a chunk."""
        start, end = self.starts[chunk_number : chunk_number + 2]
        return self.offset + start * SUM_BYTES, (end - start) * SUM_BYTES


def page_sums_size(before_seal: bytes, footer: Footer) -> int:
    """Return the size of the directory of sums at the end of these bytes; 0 if there is none."""
    if before_seal[-len(PAGE_SUMS_MAGIC) :] != PAGE_SUMS_MAGIC:
        return 0
    return len(footer.chunks) * len(footer.leaves) * SUM_BYTES + _END.size


def read_page_sums(data: bytes, end: int, footer: Footer) -> PageSums:
    """Parse the directory of sums: the last `page_sums_size` bytes before file offset `end`.

    Raises:
        ValueError: it is damaged.
    """
    sum_count, chunk_count, _ = _END.unpack_from(data, len(data) - _END.size)
    counts = np.frombuffer(data[: -_END.size], "<u4")
    starts = [0, *np.cumsum(counts, dtype=np.int64).tolist()]
    offset = end - len(data) - sum_count * SUM_BYTES
    if (
        chunk_count != len(footer.chunks) * len(footer.leaves)
        or starts[-1] != sum_count
        or offset < max((chunk.end for group in footer.chunks for chunk in group), default=0)
    ):
        raise ValueError("the file's page sums are damaged")
    return PageSums(offset, starts)


def sum_at(data: bytes, number: int) -> int:
    """Return one of a chunk's sums."""
    at = number * SUM_BYTES
    return int.from_bytes(data[at : at + SUM_BYTES], "little")


class RunningChecksums:
    """The CRC-32 of all that was written to a file so far, after each write.

    Attributes:
        value: The newest.
        positions: How many bytes were written, at the start and after each write.
        values: The CRC-32 of these bytes.
    """

    def __init__(self) -> None:
        self.value = 0
        self.positions = array("Q", [0])
        self.values = array("I", [0])

    def at(self, places: Ints) -> Any:
        """Return the sums at ascending places; None if a write crossed one of them."""
        positions = np.frombuffer(self.positions, np.uint64).astype(np.int64)
        found = positions.searchsorted(places)
        if found[-1] == len(positions) or not np.array_equal(positions[found], places):
            return None
        return np.frombuffer(self.values, np.uint32)[found]


def page_sums_bytes(
    footer: Footer, tail: bytes, tail_start: int, written: RunningChecksums
) -> bytes:
    """Return the page sums of a file, to be written after its page indexes.

    Args:
        footer: The file's.
        tail: Its last bytes, with all offset indexes.
        tail_start: Where they begin in the file.
        written: The sums of all writes. Each page must have been written separately.
    """
    indexed = [
        (tail[start - tail_start : start - tail_start + length], row_count)
        for row_count, group in zip(footer.row_counts, footer.chunks, strict=True)
        for start, length in (chunk.offset_index for chunk in group if chunk.offset_index)
    ]
    indexes = iter(read_offset_indexes(indexed))
    borders = [_borders(chunk, indexes) for group in footer.chunks for chunk in group]
    places = np.concatenate([np.empty(0, np.int64), *borders])
    sums = written.at(places) if len(places) else places
    if sums is None:
        _log.warning("a file gets no page sums, because its pages were not written one by one")
        return b""
    counts = np.array([len(each) for each in borders], "<u4")
    end = _END.pack(len(places), len(counts), PAGE_SUMS_MAGIC)
    return bytes(sums.astype("<u4").tobytes() + counts.tobytes() + end)


def _borders(chunk: ColumnChunk, indexes: Iterator[PageLocations]) -> Ints:
    """Return the offsets of a chunk's pages, its dictionary page included, and its end."""
    if chunk.offset_index is None:
        return np.empty(0, np.int64)
    index = next(indexes)
    dictionary = [chunk.offset] if index.offsets[0] > chunk.offset else []
    return np.concatenate([np.array(dictionary, np.int64), index.offsets, [chunk.end]])
