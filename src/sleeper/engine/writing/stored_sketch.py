"""Where the sketch of a data file is: in the file, and of older files in an object beside it.

    pages | sketch | Bloom filters | column indexes | offset indexes | place | page sums | seal

The place says where the sketch is, so it may be anywhere before; readers of rows never read it.
It has offset and length of the sketch, the CRC-32 of both, and a magic.
"""

from __future__ import annotations

import struct
import zlib

from sleeper.engine.writing.sketch import Sketches
from sleeper.engine.writing.sketch_bytes import read_sketches
from sleeper.errors import DataDamaged, ObjectNotFound
from sleeper.lookup.parquet.file_end import FileEnd, ReadRanges, range_reader, read_file_end
from sleeper.model import paths
from sleeper.model.files import FileReference
from sleeper.model.schema import Schema
from sleeper.ports.objects import Objects

_MAGIC = b"SLPRSKP1"
_NUMBERS = struct.Struct("<QQ")
_END = struct.Struct("<I8s")
_PLACE_BYTES = _NUMBERS.size + _END.size


def sketch_place_bytes(offset: int, size: int) -> bytes:
    """Return what a data file says of the place of its sketch, right before its page sums."""
    numbers = _NUMBERS.pack(offset, size)
    return numbers + _END.pack(zlib.crc32(numbers), _MAGIC)


def read_stored_sketch(files: Objects, reference: FileReference, schema: Schema) -> Sketches | None:
    """Return the sketch of a data file, in one request or two; None if it has none.

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
        data = _in_file(size, range_reader(files.read_ranges, filename))
    except ObjectNotFound:
        return None
    except ValueError as error:
        data = files.read(paths.sketch_file(filename))
        if data is None:
            raise DataDamaged(f"the sketch of {filename!r} cannot be found: {error}") from None
    if data is None:
        data = files.read(paths.sketch_file(filename))
    return None if data is None else read_sketches(data, schema, filename)


def _in_file(file_size: int, read: ReadRanges) -> bytes | None:
    """Read the sketch in a file; None if there is none.

    Raises:
        ValueError: the file is damaged, or is no Parquet file.
    """
    end = read_file_end(file_size, read)
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
