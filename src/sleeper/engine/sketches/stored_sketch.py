"""Where the sketch of a data file is: in the file, and of older files in an object beside it.

A file with few rows has none: its key columns are read in its place.

    pages | sketch | Bloom filters | column indexes | offset indexes | place | page sums | seal

The place says where the sketch is, so it may be anywhere before; readers of rows never read it.
It has offset and length of the sketch, the CRC-32 of both, and a magic.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from datasketches import PyLongsSerDe, PyObjectSerDe, quantiles_items_sketch

from sleeper.columns.type_traits import ARROW_TRAITS
from sleeper.engine.sketches.sketch import Distribution, Sketches, SystematicSample, value_of
from sleeper.errors import DataDamaged, FormatTooNew, ObjectNotFound, ObjectTooShort
from sleeper.lookup.parquet.file_end import (
    FileEnd,
    FileOfRanges,
    ReadRanges,
    range_reader,
    read_file_end,
)
from sleeper.model import paths
from sleeper.model.files import FileReference
from sleeper.model.keys import key_type
from sleeper.model.schema import Field, Primitive, Schema
from sleeper.ports.objects import Objects

# ---------------------------------------------------------------- sketch items
#
# The first stored form of sketches: one Apache DataSketches items sketch for each row key field.
#
# Files of earlier versions have them, in an object beside the data file. They are read, and no
# longer written.
#
#     header | rows of the file, distance of the sketched rows | fields | CRC-32 of all before it
#
# A field is the name of its type, the length of its sketch, and the sketch, compressed by zlib.

_ITEMS_MAX = 4096
_ITEM_COUNTS = struct.Struct("<QQ")
_FIELD = struct.Struct("<20sQ")
_ITEMS_BYTES_MAX = 64 << 20  # of one field: four times what was ever sketched
_LENGTH = struct.Struct("<I")


def read_items(data: memoryview, schema: Schema) -> Sketches:
    """Decode a sketch after its header, whose checksum was compared.

    Raises:
        ValueError, struct.error, RuntimeError, zlib.error and others: it is damaged.
    """
    row_count, stride = _ITEM_COUNTS.unpack_from(data)
    distributions = []
    offset = _ITEM_COUNTS.size
    for field in schema.row_keys:
        kind_name, size = _FIELD.unpack_from(data, offset)
        kind = Primitive(kind_name.rstrip(b"\0").decode())
        if kind is not field.type:
            raise ValueError(f"row key {field.name!r} is of {field.type}, its sketch of {kind}")
        start = offset + _FIELD.size
        offset = start + size
        sketch = quantiles_items_sketch.deserialize(_inflated(data[start:offset]), _serde(kind))
        distributions.append(_distribution(kind, sketch, row_count, stride))
    return Sketches(row_count, tuple(distributions))


def _inflated(deflated: memoryview) -> bytes:
    """Decompress a sketch, up to the maximum size of one."""
    inflater = zlib.decompressobj()
    body = inflater.decompress(deflated, _ITEMS_BYTES_MAX)
    if not inflater.eof:
        raise ValueError(f"it is truncated, or has more than {_ITEMS_BYTES_MAX:,} bytes")
    return body


def _distribution(kind: Primitive, sketch: Any, row_count: int, stride: int) -> Distribution:
    """Return the rows of each item: itself and the rows up to the next; the last row is one."""
    count = sketch.n
    if count > _ITEMS_MAX or count > row_count or bool(count) != bool(row_count):
        raise ValueError(f"it has {count} items for {row_count} rows")
    if count and not 1 <= stride <= row_count:
        raise ValueError(f"its items represent {stride} rows each, of {row_count}")
    values = sketch.get_quantiles([(place + 0.5) / count for place in range(count)])
    for value in values:
        value_of(kind, value)  # raises for what is no value of the kind
    if any(before > after for before, after in pairwise(values)):
        raise ValueError("its items are not in order")
    until = [min(stride * (place + 1), row_count) for place in range(count)]
    return Distribution(kind, values, until)


class _BytesSerDe(PyObjectSerDe):  # type: ignore[misc]
    """Encodes the byte strings of a sketch: their length, then their bytes.

    Strings are sketched as UTF-8, which has the same order, because the library's encoding of
    strings supports only ASCII.
    """

    def get_size(self, item: bytes) -> int:
        """Return the number of bytes of an item."""
        return 4 + len(item)

    def to_bytes(self, item: bytes) -> bytes:
        """Encode an item."""
        return _LENGTH.pack(len(item)) + item

    def from_bytes(self, data: bytes, offset: int) -> tuple[bytes, int]:
        """Decode an item, and return its number of bytes too."""
        start = offset + _LENGTH.size
        size = int.from_bytes(data[offset:start], "little")
        return data[start : start + size], _LENGTH.size + size


def _serde(kind: Primitive) -> Any:
    return _BytesSerDe() if ARROW_TRAITS[kind].numbers is None else PyLongsSerDe()


# ---------------------------------------------------------------- sketch bytes
#
# The stored form of sketches: a sample of row keys in key order, column by column.
#
#     header | type of each field | body, compressed by zstd | CRC-32 of all before it
#
# The body has, for n sampled rows, n numbers of how many rows each represents, and then the values
# of each row key field: integers, or n + 1 offsets and the bytes between them. Times are integers,
# strings UTF-8. Everything is little-endian. At most `SKETCHED_ROWS_MAX` rows are sampled; a file
# with at most so many is sketched exactly.

SKETCHED_ROWS_MAX = 4095
_SKETCHED_BYTES_MAX = 16 << 20

_BYTES_MAGIC = b"SLPRSKT"
_VERSION = 2
_ITEMS_VERSION = 1  # DataSketches' own form, in a file beside the data file
_BEGINNING = struct.Struct("<7sBH")  # magic, version, number of fields
_COUNTS = struct.Struct("<QIQ")  # rows of the file, sampled rows, bytes of the body inflated
_KIND = struct.Struct("<20s")
_CHECKSUM = struct.Struct("<I")
_INFLATED_BYTES_MAX = 4 * _SKETCHED_BYTES_MAX
_LEVEL = 1  # of the compression: adjacent keys are similar

_Numbers = np.ndarray[Any, np.dtype[Any]]
_WEIGHT = np.dtype("<i8")
_OFFSET = np.dtype("<i4")


class SketchBuilder:
    """Builds the sketch of a data file while its rows are written, in key order.

    At most `SKETCHED_ROWS_MAX` row keys, and about 16 MiB of them, are in memory.
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._sample = SystematicSample(SKETCHED_ROWS_MAX, _SKETCHED_BYTES_MAX)

    def add(self, rows: pa.Table) -> None:
        """Add more rows, which follow those before."""
        self._sample.add(rows.select(self._schema.row_key_names))

    @property
    def has_every_row(self) -> bool:
        """Whether every row is sketched, so that the key columns of the file say the same."""
        return self._sample.stride == 1

    def to_bytes(self) -> bytes:
        """Return the bytes of the sketch."""
        sample = self._sample
        rows = sample.rows_with_last()
        if rows is None:
            return sketch_bytes(None, np.empty(0, _WEIGHT), self._schema)
        until = np.arange(1, rows.num_rows + 1, dtype=_WEIGHT) * sample.stride
        np.minimum(until, sample.rows_seen - 1, out=until)  # the last is itself
        until[-1] = sample.rows_seen
        return sketch_bytes(rows, np.diff(until, prepend=0), self._schema)


def sketch_bytes(rows: pa.Table | None, weights: _Numbers, schema: Schema) -> bytes:
    """Return the stored form of a sketch.

    Args:
        rows: Sampled rows with the row key columns; None if there are none.
        weights: How many rows of the file each of them represents, itself included.
        schema: The table's.
    """
    parts = [weights.astype(_WEIGHT).tobytes()]
    kinds = [key_type(field) for field in schema.row_keys]
    if rows is not None:
        for field, kind in zip(schema.row_keys, kinds, strict=True):
            parts += _column_parts(rows.column(field.name), kind)
    body = b"".join(parts)
    whole = b"".join(
        [
            _BEGINNING.pack(_BYTES_MAGIC, _VERSION, len(kinds)),
            _COUNTS.pack(int(weights.sum()), len(weights), len(body)),
            *(_KIND.pack(kind.value.encode()) for kind in kinds),
            _codec().compress(body, asbytes=True),
        ]
    )
    return whole + _CHECKSUM.pack(zlib.crc32(whole))


def read_sketches(data: bytes, schema: Schema, name: str) -> Sketches:
    """Decode the bytes of a sketch; `name` names its file in errors.

    Raises:
        DataDamaged: the bytes are not a sketch, are incomplete, or have another schema.
        FormatTooNew: a newer Sleeper wrote them.
    """
    try:
        return _read(memoryview(data), schema, name)
    except (
        ValueError,
        struct.error,
        UnicodeDecodeError,
        RuntimeError,
        IndexError,
        TypeError,
        OverflowError,
        MemoryError,
        OSError,
        zlib.error,
    ) as error:
        raise DataDamaged(
            f"the sketch {name!r} is damaged: {error}. Splits ignore it; compacting its "
            "data file writes a new one"
        ) from None


def _codec() -> pa.Codec:
    return pa.Codec("zstd", _LEVEL)


def _little_endian(numbers: pa.DataType) -> np.dtype[Any]:
    found: np.dtype[Any] = np.dtype(numbers.to_pandas_dtype()).newbyteorder("<")
    return found


def _column_parts(column: pa.ChunkedArray, kind: Primitive) -> Iterator[bytes]:
    """Yield the values of a column: integers, or offsets and bytes."""
    numbers = ARROW_TRAITS[kind].numbers
    if numbers is not None:
        yield column.cast(numbers).to_numpy().astype(_little_endian(numbers)).tobytes()
        return
    values = column.combine_chunks()
    if isinstance(values, pa.ChunkedArray):  # pyarrow returns one if there are no chunks
        values = values.chunk(0)
    _, offset_buffer, data = values.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)[
        values.offset : values.offset + len(values) + 1
    ]
    first, last = int(offsets[0]), int(offsets[-1])
    yield (offsets - first).astype(_OFFSET).tobytes()
    yield bytes(memoryview(data)[first:last]) if last > first else b""


def _read(data: memoryview, schema: Schema, name: str) -> Sketches:
    whole, checksum = data[: -_CHECKSUM.size], data[-_CHECKSUM.size :]
    if bytes(whole[: len(_BYTES_MAGIC)]) != _BYTES_MAGIC:
        raise ValueError("it does not begin like a sketch")
    if _CHECKSUM.unpack(checksum)[0] != zlib.crc32(whole):
        raise ValueError("its checksum does not match its bytes")
    _, version, field_count = _BEGINNING.unpack_from(whole)
    if version > _VERSION:
        raise FormatTooNew(
            f"the sketch {name!r} has format {version}, this Sleeper knows {_VERSION}: upgrade it"
        )
    if field_count != len(schema.row_keys):
        raise ValueError(f"it has {field_count} fields, the table {len(schema.row_keys)} row keys")
    rest = whole[_BEGINNING.size :]
    if version == _ITEMS_VERSION:
        return read_items(rest, schema)
    row_count, count, size = _COUNTS.unpack_from(rest)
    _check_counts(row_count, count, size)
    offset = _COUNTS.size
    for field in schema.row_keys:
        _check_kind(field, *_KIND.unpack_from(rest, offset))
        offset += _KIND.size
    body = _Body(_codec().decompress(rest[offset:], size, asbytes=True))
    weights = body.numbers(_WEIGHT, count)
    if count and (weights.min() < 1 or weights.max() > row_count or weights.sum() != row_count):
        raise ValueError(f"its items do not represent {row_count} rows")
    columns = [_values(body, key_type(field), count) for field in schema.row_keys]
    body.check_end()
    return Sketches(row_count, tuple(each(weights) for each in columns))


def _check_counts(row_count: int, count: int, size: int) -> None:
    if count > SKETCHED_ROWS_MAX + 1 or count > row_count or bool(count) != bool(row_count):
        raise ValueError(f"it has {count} items for {row_count} rows")
    if size > _INFLATED_BYTES_MAX:
        raise ValueError(f"it has more than {_INFLATED_BYTES_MAX:,} bytes")


def _check_kind(field: Field, stored: bytes) -> None:
    kind = Primitive(stored.rstrip(b"\0").decode())
    if kind is not field.type:
        raise ValueError(f"row key {field.name!r} is of {field.type}, its sketch of {kind}")


class _Body:
    """The inflated body of a sketch, which is read from its beginning to its end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def numbers(self, kind: np.dtype[Any], count: int) -> _Numbers:
        """Take numbers. Raises ValueError if there are fewer."""
        found: _Numbers = np.frombuffer(self._data, kind, count, self._at)
        self._at += found.nbytes
        return found

    def bytes_of(self, size: int) -> bytes:
        """Take bytes. Raises ValueError if there are fewer."""
        found = self._data[self._at : self._at + size]
        if len(found) != size:
            raise ValueError("it is truncated")
        self._at += size
        return found

    def check_end(self) -> None:
        """Raise ValueError if something is left."""
        if self._at != len(self._data):
            raise ValueError("it is longer than its values")


def _values(body: _Body, kind: Primitive, count: int) -> Callable[[_Numbers], Distribution]:
    """Take the values of a field; return a function that makes a distribution of them.

    Values of the first field are in order already; others are sorted.
    """
    values = _array(body, kind, count)

    def distribution(weights: _Numbers) -> Distribution:
        order = pc.array_sort_indices(values)
        until = np.cumsum(weights[order.to_numpy()])
        return Distribution(kind, values.take(order).to_pylist(), until.tolist())

    return distribution


def _array(body: _Body, kind: Primitive, count: int) -> pa.Array:
    """Take the values of a field as an array, and check that they are values of its type."""
    traits = ARROW_TRAITS[kind]
    if traits.numbers is not None:
        values = pa.array(body.numbers(_little_endian(traits.numbers), count))
        for end in (pc.min(values).as_py(), pc.max(values).as_py()) if count else ():
            value_of(kind, end)
        return values
    if not count:
        return pa.array([], pa.binary())
    offsets = body.numbers(_OFFSET, count + 1)
    if offsets[0] or (np.diff(offsets) < 0).any():
        raise ValueError("its values overlap")
    data = body.bytes_of(int(offsets[-1]))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    values = pa.Array.from_buffers(pa.binary(), count, buffers)
    values.cast(traits.arrow)  # raises for text that is no UTF-8
    return values


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
        source = pa.PythonFile(FileOfRanges(read, size), mode="r")
        file = pq.ParquetFile(source, pre_buffer=False, page_checksum_verification=True)
        builder.add(file.read(schema.row_key_names))
        return read_sketches(builder.to_bytes(), schema, filename)
    except (OSError, ValueError, KeyError) as error:
        raise DataDamaged(f"the row keys of {filename!r} cannot be read: {error}") from error


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
