"""Writes Avro files whose records are Arrow columns: as much of Avro as Iceberg's manifests need.

A record's bytes are those of its fields, one after the other, so a column of encoded fields is made
for each field, and the columns are joined. No record is made in Python: a million take seconds.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from hashlib import sha256
from io import BytesIO
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.columns.joined import bytes_of, joined_bytes

Encoded: TypeAlias = pa.Array | bytes
"""A field of all records: its bytes for each, or the same bytes for all."""

_MAGIC: Final = b"Obj\x01"
_RECORDS_A_BLOCK: Final = 10_000
_LONG_BYTES_MAX: Final = 10


def long_bytes(value: int) -> bytes:
    """Return an int or a long: zigzag, seven bits a byte, the lowest first."""
    rest, found = (value << 1) ^ (value >> 63), bytearray()
    while rest > 0x7F:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*found, rest])


def sized_bytes(value: bytes) -> bytes:
    """Return a string or bytes: the length, then the bytes."""
    return long_bytes(len(value)) + value


def longs(values: pa.Array) -> pa.Array:
    """Return a column of ints or longs without nulls, encoded."""
    numbers = values.cast(pa.int64()).to_numpy(zero_copy_only=False)
    rest = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
    digits = np.empty((len(rest), _LONG_BYTES_MAX), np.uint8)
    lengths = np.ones(len(rest), np.int64)
    for place in range(_LONG_BYTES_MAX):
        more = rest > 0x7F
        digits[:, place] = (rest & np.uint64(0x7F)).astype(np.uint8) | (more.astype(np.uint8) << 7)
        lengths += more
        rest = rest >> np.uint64(7)
    used = np.arange(_LONG_BYTES_MAX) < lengths[:, None]
    ends = np.concatenate([[0], np.cumsum(lengths)])
    return _large_binary(ends, digits[used].tobytes())


def sized(values: pa.Array) -> pa.Array:
    """Return a column of strings or bytes without nulls, encoded."""
    bodies = values.cast(pa.large_binary())
    return joined_bytes([longs(pc.binary_length(bodies)), bodies])


def _large_binary(ends: Any, body: bytes) -> pa.Array:
    buffers = [None, pa.py_buffer(ends.astype(np.int64).tobytes()), pa.py_buffer(body)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(ends) - 1, buffers)


def avro_file(schema: Mapping[str, Any], metadata: Mapping[str, str], records: pa.Array) -> bytes:
    """Return a file of records that are encoded already. The same input gives the same bytes.

    Args:
        schema: Avro's schema of a record.
        metadata: What readers find in the head of the file.
        records: The bytes of each record.
    """
    head = {**metadata, "avro.schema": json.dumps(schema), "avro.codec": "deflate"}
    mark = sha256(json.dumps(head).encode()).digest()[:16]
    written = BytesIO()
    written.write(_MAGIC + long_bytes(len(head)))
    for name, text in head.items():
        written.write(sized_bytes(name.encode()) + sized_bytes(text.encode()))
    written.write(b"\0" + mark)
    for start in range(0, len(records), _RECORDS_A_BLOCK):
        block = records.slice(start, _RECORDS_A_BLOCK)
        packing = zlib.compressobj(level=1, wbits=-15)
        body = packing.compress(bytes_of(block)) + packing.flush()
        written.write(long_bytes(len(block)) + sized_bytes(body) + mark)
    return written.getvalue()


def file_metadata(head: bytes) -> dict[str, str]:
    """Return the metadata of a file by its first bytes, as `avro_file` wrote them.

    Raises:
        ValueError: it is no such file.
    """
    try:
        if head[:4] != _MAGIC:
            raise ValueError("it does not begin as a file of Avro")
        count, place = _read_long(head, 4)
        found = {}
        for _ in range(count):
            name, place = _read_sized(head, place)
            text, place = _read_sized(head, place)
            found[name.decode()] = text.decode()
    except IndexError:
        raise ValueError("it ends too early") from None
    return found


def _read_sized(data: bytes, place: int) -> tuple[bytes, int]:
    length, start = _read_long(data, place)
    if not 0 <= length <= len(data) - start:
        raise ValueError("it ends too early")
    return data[start : start + length], start + length


def _read_long(data: bytes, place: int) -> tuple[int, int]:
    found = shift = 0
    while True:
        byte = data[place]
        found |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return (found >> 1) ^ -(found & 1), place
