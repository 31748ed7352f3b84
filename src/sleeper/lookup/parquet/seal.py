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

import struct
import zlib
from collections.abc import Sequence

from sleeper.language.value_classes import dataclass
from sleeper.lookup.parquet.footer import Footer

SEAL_MAGIC = b"SLPRSEL1"
_END = struct.Struct("<II8s")

SEAL_BYTES_MIN = _END.size


@dataclass(frozen=True, slots=True)
class Seal:
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
