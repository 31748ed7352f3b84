"""Where the sketch of a data file is: in the file, and of older files in an object beside it.

A file with few rows has none: its key columns are read in its place.

    pages | sketch | Bloom filters | column indexes | offset indexes | place | page sums | seal

The place says where the sketch is, so it may be anywhere before; readers of rows never read it.
It has offset and length of the sketch, the CRC-32 of both, and a magic.
"""

from __future__ import annotations

import io
import struct
import zlib

import pyarrow as pa
import pyarrow.parquet as pq

from sleeper.engine.writing.sketch import Sketches
from sleeper.engine.writing.sketch_bytes import SKETCHED_ROWS_MAX, SketchBuilder, read_sketches
from sleeper.errors import DataDamaged, ObjectNotFound, ObjectTooShort
from sleeper.lookup.parquet.file_end import FileEnd, ReadRanges, range_reader, read_file_end
from sleeper.model import paths
from sleeper.model.files import FileReference
from sleeper.model.schema import Schema
from sleeper.ports.objects import Objects

_MAGIC = b"SLPRSKP1"
_NUMBERS = struct.Struct("<QQ")
_END = struct.Struct("<I8s")
_KEY_BYTES_MAX = 64 << 20
_PLACE_BYTES = _NUMBERS.size + _END.size


def sketch_place_bytes(offset: int, size: int) -> bytes:
    """Return what a data file says of the place of its sketch, right before its page sums."""
    numbers = _NUMBERS.pack(offset, size)
    return numbers + _END.pack(zlib.crc32(numbers), _MAGIC)


def read_stored_sketch(files: Objects, reference: FileReference, schema: Schema) -> Sketches | None:
    """Return the sketch of a data file, in few requests; None if it has none.

    Args:
        files: The table's folder.
        reference: A reference to the file.
        schema: The table's.

    Raises:
        DataDamaged: the sketch is damaged, or of another schema.
        FormatTooNew: a newer Sleeper wrote it.
        StorageFailed: the storage cannot be read.
    """
    filename = reference.filename
    try:
        size = reference.size_bytes or files.size(filename)
        read = range_reader(files.read_ranges, filename)
        end = read_file_end(size, read)
        if _says_it_itself(end, schema):
            return _of_rows(read, size, schema, filename)
        data = _in_file(end, read)
    except ObjectNotFound:
        return None
    except (ValueError, ObjectTooShort) as error:
        data = files.read(paths.sketch_file(filename))
        if data is None:
            raise DataDamaged(f"the sketch of {filename!r} cannot be found: {error}") from None
    if data is None:
        data = files.read(paths.sketch_file(filename))
    return None if data is None else read_sketches(data, schema, filename)


def _says_it_itself(end: FileEnd, schema: Schema) -> bool:
    """Return whether a file of ours has so few rows that its key columns are its sketch."""
    names = set(schema.row_key_names)
    size = sum(
        chunk.uncompressed_size
        for group in end.footer.chunks
        for leaf, chunk in zip(end.footer.leaves, group, strict=True)
        if leaf.path[0] in names
    )
    return (
        end.seal is not None
        and end.footer.row_count <= SKETCHED_ROWS_MAX
        and size <= _KEY_BYTES_MAX
    )


def _of_rows(read: ReadRanges, size: int, schema: Schema, filename: str) -> Sketches:
    """Make the sketch of a file from its key columns, and check their pages."""
    builder = SketchBuilder(schema)
    try:
        source = pa.PythonFile(_FileOfRanges(read, size), mode="r")
        file = pq.ParquetFile(source, pre_buffer=False, page_checksum_verification=True)
        builder.add(file.read(schema.row_key_names))
        return read_sketches(builder.to_bytes(), schema, filename)
    except (OSError, ValueError, KeyError) as error:
        raise DataDamaged(f"the row keys of {filename!r} cannot be read: {error}") from error


class _FileOfRanges(io.RawIOBase):
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


def _in_file(end: FileEnd, read: ReadRanges) -> bytes | None:
    """Read the sketch in a file; None if there is none.

    Raises:
        ValueError: the place of the sketch is damaged.
    """
    if end.seal is None:
        return None
    place_end = _place_end(end)
    if place_end < _PLACE_BYTES:
        return None
    start = place_end - _PLACE_BYTES - end.held_at
    place = end.held[start : start + _PLACE_BYTES] if start >= 0 else b""
    if len(place) < _PLACE_BYTES:
        (place,) = read([(place_end - _PLACE_BYTES, _PLACE_BYTES)])
    checksum, magic = _END.unpack_from(place, _NUMBERS.size)
    if magic != _MAGIC:
        return None
    offset, size = _NUMBERS.unpack_from(place)
    if checksum != zlib.crc32(place[: _NUMBERS.size]) or offset + size > place_end:
        raise ValueError("the place of its sketch is damaged")
    (data,) = read([(offset, size)])
    return data


def _place_end(end: FileEnd) -> int:
    """Return where the place of the sketch ends: before the page sums, or before the seal."""
    return end.held_at + len(end.held) if end.sums is None else end.sums.offset
