"""The parts of the Thrift compact protocol that Parquet's metadata uses.

Structs are decoded to dicts (field id to value), so unknown fields are kept. Every read is bounded
by the available bytes: damaged bytes raise `ValueError`, and never cause a long loop or a large
allocation.

Source: thrift/doc/specs/thrift-compact-protocol.md; parquet-format, parquet.thrift.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)

DEPTH_MAX = 24
"""Parquet nests metadata about eight levels deep; more is damage, and would exhaust the stack."""

Field = tuple[int, int, Any]
"""(field id, type, value), in ascending order of ids. A list's value is (element type, values)."""

_double = struct.Struct("<d")


def read_struct(data: bytes, at: int = 0, depth: int = 0) -> tuple[dict[int, Any], int]:
    """Read one struct that starts at byte `at`; return it and the position after it.

    Raises:
        ValueError: the bytes are not a struct, or end too early.
    """
    try:
        return _struct(data, at, depth)
    except IndexError:
        raise ValueError("a Thrift struct runs past the end of its bytes") from None


def read_list_header(data: bytes, at: int) -> tuple[int, int, int]:
    """Return (element type, length, position of the first element).

    Raises:
        ValueError: more elements are announced than bytes are left.
    """
    head = data[at]
    count, at = head >> 4, at + 1
    if count == 15:
        count, at = read_varint(data, at)
    if count > len(data) - at:
        raise ValueError("a Thrift list announces more elements than there are bytes")
    return head & 15, count, at


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return an unsigned integer of at most 64 bits, and the position after it."""
    byte = data[at]
    at += 1
    if byte < 128:
        return byte, at
    value, shift = byte & 127, 7
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a Thrift integer is longer than 64 bits")


def _struct(data: bytes, at: int, depth: int) -> tuple[dict[int, Any], int]:
    if depth > DEPTH_MAX:
        raise ValueError("Thrift structs are nested too deeply")
    fields: dict[int, Any] = {}
    field = 0
    while True:
        head = data[at]
        at += 1
        if head == 0:
            return fields, at
        if head > 15:
            field += head >> 4
        else:
            number, at = read_varint(data, at)
            field = (number >> 1) ^ -(number & 1)
        kind = head & 15
        if I16 <= kind <= I64:
            # By far the most frequent kind, so it is decoded inline.
            byte = data[at]
            if byte < 128:
                at += 1
            else:
                byte, at = read_varint(data, at)
            fields[field] = (byte >> 1) ^ -(byte & 1)
        elif kind == STRUCT:
            fields[field], at = _struct(data, at, depth + 1)
        elif kind in (LIST, SET):
            fields[field], at = _list(data, at, depth + 1)
        elif kind in (TRUE, FALSE):
            fields[field] = kind == TRUE
        else:
            fields[field], at = _value(data, at, kind, depth)


def _value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind == BINARY:
        length = data[at]
        at += 1
        if length > 127:
            length, at = read_varint(data, at - 1)
        end = at + length
        if end > len(data):
            raise ValueError("a Thrift string runs past the end of its bytes")
        return data[at:end], end
    if kind == STRUCT:
        return _struct(data, at, depth + 1)
    if kind in (LIST, SET):
        return _list(data, at, depth + 1)
    if I16 <= kind <= I64:
        number, at = read_varint(data, at)
        return (number >> 1) ^ -(number & 1), at
    if kind in (BYTE, TRUE, FALSE):
        return data[at], at + 1
    if kind == DOUBLE:
        if at + 8 > len(data):
            raise ValueError("a Thrift number runs past the end of its bytes")
        return _double.unpack_from(data, at)[0], at + 8
    raise ValueError(f"Parquet metadata has no Thrift type {kind}")


def _list(data: bytes, at: int, depth: int) -> tuple[list[Any], int]:
    head = data[at]
    kind, count, at = head & 15, head >> 4, at + 1
    if count == 15 or count > len(data) - at:
        kind, count, at = read_list_header(data, at - 1)
    if depth > DEPTH_MAX:
        raise ValueError("Thrift lists are nested too deeply")
    if kind == STRUCT:
        structs = []
        for _ in range(count):
            value, at = _struct(data, at, depth)
            structs.append(value)
        return structs, at
    values: list[Any] = []
    if I16 <= kind <= I64:
        for _ in range(count):
            byte = data[at]
            if byte < 128:
                at += 1
            else:
                byte, at = read_varint(data, at)
            values.append((byte >> 1) ^ -(byte & 1))
        return values, at
    for _ in range(count):
        value, at = _value(data, at, kind, depth)
        values.append(value)
    return values, at


def struct_bytes(fields: Sequence[Field], *, after: int = 0) -> bytes:
    """Return the bytes of a struct, or of its rest after the field `after`.

    >>> read_struct(struct_bytes([(1, I32, -5), (20, BINARY, b"key")]))
    ({1: -5, 20: b'key'}, 9)
    """
    out = bytearray()
    last = after
    for number, kind, value in fields:
        if 0 < number - last < 16:
            out.append((number - last) << 4 | kind)
        else:
            out.append(kind)
            out += _varint_bytes(number << 1)
        last = number
        out += _value_bytes(kind, value)
    out.append(0)
    return bytes(out)


def _value_bytes(kind: int, value: Any) -> bytes:
    if I16 <= kind <= I64:
        return _varint_bytes((value << 1) ^ (value >> 63))
    if kind == BINARY:
        return _varint_bytes(len(value)) + bytes(value)
    if kind == STRUCT:
        # A struct may be given as bytes that were copied from another file.
        return value if isinstance(value, bytes) else struct_bytes(value)
    if kind == LIST:
        element, values = value
        count = len(values)
        head = (
            bytes([count << 4 | element])
            if count < 15
            else bytes([0xF0 | element]) + _varint_bytes(count)
        )
        return head + b"".join(_value_bytes(element, each) for each in values)
    raise ValueError(f"no mini-file needs Thrift type {kind}")


def _varint_bytes(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
