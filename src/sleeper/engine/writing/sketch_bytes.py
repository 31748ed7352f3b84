"""The stored form of sketches: a sample of row keys in key order, column by column.

    header | type of each field | body, compressed by zstd | CRC-32 of all before it

The body has, for n sampled rows, n numbers of how many rows each represents, and then the values
of each row key field: integers, or n + 1 offsets and the bytes between them. Times are integers,
strings UTF-8. Everything is little-endian. At most `SKETCHED_ROWS_MAX` rows are sampled; a file
with at most so many is sketched exactly.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.engine.sorting.systematic_sample import SystematicSample
from sleeper.engine.writing.sketch import Distribution, Sketches, value_of
from sleeper.engine.writing.sketch_items import read_items
from sleeper.errors import DataDamaged, FormatTooNew
from sleeper.model.keys import key_type
from sleeper.model.schema import Field, Primitive, Schema

SKETCHED_ROWS_MAX = 4095
_SKETCHED_BYTES_MAX = 16 << 20

_MAGIC = b"SLPRSKT"
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
_INT32, _INT64 = np.dtype("<i4"), np.dtype("<i8")
_INTEGERS: dict[Primitive, np.dtype[Any]] = {
    Primitive.INT: _INT32,
    Primitive.LONG: _INT64,
    Primitive.DATE: _INT32,
    Primitive.TIMESTAMP: _INT64,
    Primitive.TIMESTAMP_NTZ: _INT64,
}


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
            _BEGINNING.pack(_MAGIC, _VERSION, len(kinds)),
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


def _column_parts(column: pa.ChunkedArray, kind: Primitive) -> Iterator[bytes]:
    """Yield the values of a column: integers, or offsets and bytes."""
    if kind in _INTEGERS:
        plain = column.cast(pa.int32() if _INTEGERS[kind] is _INT32 else pa.int64())
        yield plain.to_numpy().astype(_INTEGERS[kind]).tobytes()
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
    if bytes(whole[: len(_MAGIC)]) != _MAGIC:
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
    if kind in _INTEGERS:
        values = pa.array(body.numbers(_INTEGERS[kind], count))
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
    if kind is Primitive.STRING:
        values.cast(pa.string())  # raises for what is no UTF-8
    return values
