"""The end of a Parquet file: its footer, its seal, and the page indexes that are held in memory."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

from sleeper.errors import StorageFailed
from sleeper.lookup.parquet.footer import TAIL_BYTES, Footer, footer_length, read_footer
from sleeper.lookup.parquet.seal import (
    PAGE_SUMS_END_BYTES,
    SEAL_BYTES_MIN,
    PageSums,
    Seal,
    page_sums_size,
    read_page_sums,
    read_seal,
    seal_size,
)

ReadRanges = Callable[[Sequence[tuple[int, int]]], list[bytes]]
"""Reads (offset, length) ranges of the file; returns exactly these bytes or raises an error."""

FIRST_READ_BYTES = 64 << 10
HELD_BYTES_MAX = 1 << 20
"""If the index area is at most this large, all of it is read when the file is opened; otherwise
parts are read at their use."""

REMOTE_READ_BYTES = 128 << 10
REMOTE_WHOLE_BYTES = 256 << 10
"""Where a request takes long, a file of at most so many bytes is read whole by the first one."""

REMOTE_READ_BYTES_MAX = 2 << 20
_INDEX_SHARE = 128
"""Where a request takes long, the first read of a file is meant to have its indexes: a 128th of the
file, between these numbers of bytes. Indexes of files of this package take a 150th to a 300th."""

REMOTE_HELD_BYTES_MAX = 4 << 20
"""`HELD_BYTES_MAX`, where a request takes long."""


class FileEnd(NamedTuple):
    """The content of the end of a file.

    Attributes:
        footer: The footer.
        seal: The seal; None if the file has none.
        sums: The place of the page sums; None if the file has none.
        held: The bytes of the page indexes from `held_at` on, up to the seal.
        held_at: The file offset of `held`.
        file_bytes: The size of the file.
    """

    footer: Footer
    seal: Seal | None
    sums: PageSums | None
    held: bytes
    held_at: int
    file_bytes: int


def range_reader(
    read_ranges: Callable[[str, Sequence[tuple[int, int]]], list[bytes]], filename: str
) -> ReadRanges:
    """Return a function that reads ranges of one data file, and checks their lengths.

    It raises StorageFailed if the file cannot be read, and ValueError if it ends too early.
    """

    def read(ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        try:
            blobs = read_ranges(filename, ranges)
        except OSError as error:
            raise StorageFailed(
                f"data file {filename!r} cannot be read: {error}. Repair the storage and try again."
            ) from error
        for blob, (offset, length) in zip(blobs, ranges, strict=True):
            if len(blob) != length:
                raise ValueError(f"it ends before byte {offset + length}")
        return blobs

    return read


def read_file_end(
    file_size: int, read: ReadRanges, *, remote: bool = False, tail: bytes = b""
) -> FileEnd:
    """Read the end of a file in one request, or in a few if it is long, and check it.

    Args:
        file_size: The file's size.
        read: Reads the file.
        remote: Whether a request takes long, so that a few bytes in vain cost less.
        tail: The last bytes, if they were read already.

    Raises:
        ValueError: the file is not a Parquet file, or is damaged.
    """
    first, held_max = FIRST_READ_BYTES, HELD_BYTES_MAX
    if remote:
        share = min(file_size // _INDEX_SHARE, REMOTE_READ_BYTES_MAX)
        least = REMOTE_READ_BYTES if file_size > REMOTE_WHOLE_BYTES else file_size
        first, held_max = max(share, least), REMOTE_HELD_BYTES_MAX
    tail = tail or _extended(b"", first, file_size, read)
    length = footer_length(tail, file_size)
    tail = _extended(tail, TAIL_BYTES + length + SEAL_BYTES_MIN, file_size, read)
    footer_start = file_size - TAIL_BYTES - length
    seal_length = seal_size(tail[: len(tail) - TAIL_BYTES - length])
    if seal_length > footer_start:
        raise ValueError("the file's seal is damaged")
    tail = _extended(tail, TAIL_BYTES + length + seal_length, file_size, read)
    at = len(tail) - TAIL_BYTES - length
    seal = read_seal(tail[at - seal_length : at]) if seal_length else None
    if seal is not None and zlib.crc32(tail[at:-4]) != seal.footer:
        raise ValueError("its footer does not match its seal")
    footer = read_footer(tail[at:-TAIL_BYTES], footer_start)
    tail_bytes = TAIL_BYTES + length + seal_length
    sums, tail = None, _extended(tail, tail_bytes + PAGE_SUMS_END_BYTES, file_size, read)
    sums_length = page_sums_size(tail[:-tail_bytes], footer) if seal_length else 0
    if sums_length:
        tail = _extended(tail, tail_bytes + sums_length, file_size, read)
        at = len(tail) - tail_bytes
        sums = read_page_sums(tail[max(0, at - sums_length) : at], file_size - tail_bytes, footer)
    index_start = _index_start(footer, footer_start)
    if file_size - index_start <= held_max:
        tail = _extended(tail, file_size - index_start, file_size, read)
    held_at = max(index_start, file_size - len(tail))
    held = tail[held_at - (file_size - len(tail)) : -tail_bytes]
    return FileEnd(footer, seal, sums, held, held_at, file_size)


def _extended(tail: bytes, wanted: int, file_size: int, read: ReadRanges) -> bytes:
    """Return at least the last `wanted` bytes of the file; read the bytes that `tail` lacks.

    A tail that is too short at least doubles, so that few reads are needed for a long one.
    """
    if min(wanted, file_size) <= len(tail):
        return tail
    lacking = min(max(wanted, 2 * len(tail)), file_size) - len(tail)
    (more,) = read([(file_size - len(tail) - lacking, lacking)])
    return more + tail


def _index_start(footer: Footer, footer_start: int) -> int:
    places = [
        place[0]
        for group in footer.chunks
        for chunk in group
        for place in (chunk.column_index, chunk.offset_index)
        if place is not None
    ]
    return min(places, default=footer_start)


class FileOfRanges(io.RawIOBase):
    """A file for pyarrow, of which ranges can be read."""

    def __init__(self, read: ReadRanges, size: int) -> None:
        super().__init__()
        self._read, self._size, self._at = read, size, 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position of the next read."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position of the next read, and return it."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = base + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Read up to `size` bytes."""
        left = max(0, self._size - self._at)
        length = left if size < 0 else min(size, left)
        (data,) = self._read([(self._at, length)]) if length else (b"",)
        self._at += length
        return data
