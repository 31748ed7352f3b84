"""The first stored form of sketches: one Apache DataSketches items sketch for each row key field.

Files of earlier versions have them, in an object beside the data file. They are read, and no longer
written.

    header | rows of the file, distance of the sketched rows | fields | CRC-32 of all before it

A field is the name of its type, the length of its sketch, and the sketch, compressed by zlib.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from datasketches import PyLongsSerDe, PyObjectSerDe, quantiles_items_sketch

from sleeper.engine.writing.sketch import Distribution, Sketches, value_of
from sleeper.model.schema import Primitive, Schema

_ITEMS_MAX = 4096
_COUNTS = struct.Struct("<QQ")
_FIELD = struct.Struct("<20sQ")
_INFLATED_BYTES_MAX = 64 << 20  # of one field: four times what was ever sketched
_LENGTH = struct.Struct("<I")


def read_items(data: memoryview, schema: Schema) -> Sketches:
    """Decode a sketch after its header, whose checksum was compared.

    Raises:
        ValueError, struct.error, RuntimeError, zlib.error and others: it is damaged.
    """
    row_count, stride = _COUNTS.unpack_from(data)
    distributions = []
    offset = _COUNTS.size
    for field in schema.row_keys:
        kind_name, size = _FIELD.unpack_from(data, offset)
        kind = Primitive(kind_name.rstrip(b"\0").decode())
        if kind is not field.type:
            raise ValueError(f"row key {field.name!r} is of {field.type}, its sketch of {kind}")
        start = offset + _FIELD.size
        offset = start + size
        sketch = quantiles_items_sketch.deserialize(_inflated(data[start:offset]), _SERDES[kind]())
        distributions.append(_distribution(kind, sketch, row_count, stride))
    return Sketches(row_count, tuple(distributions))


def _inflated(deflated: memoryview) -> bytes:
    """Decompress a sketch, up to the maximum size of one."""
    inflater = zlib.decompressobj()
    body = inflater.decompress(deflated, _INFLATED_BYTES_MAX)
    if not inflater.eof:
        raise ValueError(f"it is truncated, or has more than {_INFLATED_BYTES_MAX:,} bytes")
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


_SERDES: dict[Primitive, Callable[[], Any]] = {
    Primitive.INT: PyLongsSerDe,
    Primitive.LONG: PyLongsSerDe,
    Primitive.STRING: _BytesSerDe,
    Primitive.BYTES: _BytesSerDe,
    Primitive.DATE: PyLongsSerDe,
    Primitive.TIMESTAMP: PyLongsSerDe,
    Primitive.TIMESTAMP_NTZ: PyLongsSerDe,
}
