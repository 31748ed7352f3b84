"""XXH64, the hash of Parquet's Bloom filters: of one value in plain Python, of many with numpy.

The seed is always 0, as Parquet wants it. Source: xxHash, doc/xxhash_spec.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Hashes = npt.NDArray[np.uint64]

_P1 = 0x9E3779B185EBCA87
_P2 = 0xC2B2AE3D27D4EB4F
_P3 = 0x165667B19E3779F9
_P4 = 0x85EBCA77C2B2AE63
_P5 = 0x27D4EB2F165667C5
_MASK = 0xFFFFFFFFFFFFFFFF
_LANES = ((_P1 + _P2) & _MASK, _P2, 0, -_P1 & _MASK)

_N1, _N2, _N3, _N4, _N5 = (np.uint64(prime) for prime in (_P1, _P2, _P3, _P4, _P5))

_BATCH_BYTES = 4 << 20
"""Values of one length are hashed together up to so many bytes. It bounds memory."""


def hash_value(data: bytes) -> int:
    """Return the hash of one value.

    >>> hex(hash_value(b"")), hex(hash_value(b"abc"))
    ('0xef46db3751d8e999', '0x44bc2cf5ad770999')
    """
    length, at = len(data), 0
    if length < 32:
        found = _P5 + length
    else:
        found, at = _hash_stripes(data)
        found += length
    while at + 8 <= length:
        lane = int.from_bytes(data[at : at + 8], "little") * _P2 & _MASK
        found ^= (lane << 31 | lane >> 33) * _P1 & _MASK
        found = (found << 27 | (found & _MASK) >> 37) * _P1 + _P4 & _MASK
        at += 8
    if at + 4 <= length:
        found ^= int.from_bytes(data[at : at + 4], "little") * _P1 & _MASK
        found = (found << 23 | (found & _MASK) >> 41) * _P2 + _P3 & _MASK
        at += 4
    for byte in data[at:]:
        found ^= byte * _P5 & _MASK
        found = (found << 11 | (found & _MASK) >> 53) * _P1 & _MASK
    found &= _MASK
    found = (found ^ found >> 33) * _P2 & _MASK
    found = (found ^ found >> 29) * _P3 & _MASK
    return found ^ found >> 32


def _hash_stripes(data: bytes) -> tuple[int, int]:
    """Hash all whole 32 bytes; return the hash so far, and the position after them."""
    lanes, at = list(_LANES), 0
    for at in range(0, len(data) - 31, 32):
        for number in range(4):
            word = int.from_bytes(data[at + 8 * number : at + 8 * number + 8], "little")
            lanes[number] = _rotated(lanes[number] + word * _P2 & _MASK, 31) * _P1 & _MASK
    found = sum(_rotated(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True))
    for lane in lanes:
        found ^= _rotated(lane * _P2 & _MASK, 31) * _P1 & _MASK
        found = (found & _MASK) * _P1 + _P4 & _MASK
    return found, at + 32


def _rotated(value: int, by: int) -> int:
    return (value << by | value >> 64 - by) & _MASK


def hash_array(values: pa.Array) -> Hashes:
    """Return the hash of each of many values: integers of 32 or 64 bits, or byte arrays."""
    if len(values) == 0:
        return np.empty(0, np.uint64)
    if not pa.types.is_binary(values.type):
        numbers = np.ascontiguousarray(values.to_numpy(zero_copy_only=False))
        return _hash_rows(numbers.view(np.uint8).reshape(len(numbers), -1))
    lengths = pc.binary_length(values).to_numpy(zero_copy_only=False).astype(np.int64)
    starts = np.cumsum(lengths) - lengths
    joined = np.frombuffer(b"".join(values.to_pylist()), np.uint8)
    found = np.empty(len(values), np.uint64)
    order = lengths.argsort(kind="stable")
    distinct, first = np.unique(lengths[order], return_index=True)
    for length, some in zip(distinct.tolist(), np.split(order, first[1:]), strict=True):
        step = max(1, _BATCH_BYTES // (length + 1))
        for at in range(0, len(some), step):
            batch = some[at : at + step]
            found[batch] = _hash_rows(joined[starts[batch][:, None] + np.arange(length)])
    return found


def _hash_rows(rows: npt.NDArray[np.uint8]) -> Hashes:
    """Hash each row of a table of bytes."""
    length = rows.shape[1]
    whole = length // 8
    words = np.ascontiguousarray(rows[:, : whole * 8]).view("<u8").astype(np.uint64, copy=False)
    used = 0
    if length < 32:
        found = np.full(len(rows), _P5 + length, np.uint64)
    else:
        used = whole // 4 * 4
        found = _many_stripes(words[:, :used]) + np.uint64(length)
    for number in range(used, whole):
        found ^= _rounded(words[:, number] * _N2)
        found = _many_rotated(found, 27) * _N1 + _N4
    at = whole * 8
    if length - at >= 4:
        word = np.ascontiguousarray(rows[:, at : at + 4]).view("<u4")[:, 0]
        found ^= word.astype(np.uint64) * _N1
        found = _many_rotated(found, 23) * _N2 + _N3
        at += 4
    for number in range(at, length):
        found ^= rows[:, number].astype(np.uint64) * _N5
        found = _many_rotated(found, 11) * _N1
    found = (found ^ found >> np.uint64(33)) * _N2
    found = (found ^ found >> np.uint64(29)) * _N3
    return found ^ found >> np.uint64(32)


def _many_stripes(words: npt.NDArray[np.uint64]) -> Hashes:
    lanes = [np.full(len(words), lane, np.uint64) for lane in _LANES]
    for at in range(0, words.shape[1], 4):
        for number in range(4):
            lanes[number] = _rounded(lanes[number] + words[:, at + number] * _N2)
    found: Any = np.zeros(len(words), np.uint64)
    for lane, by in zip(lanes, (1, 7, 12, 18), strict=True):
        found = found + _many_rotated(lane, by)
    for lane in lanes:
        found = (found ^ _rounded(lane * _N2)) * _N1 + _N4
    return np.asarray(found, np.uint64)


def _rounded(lanes: Hashes) -> Hashes:
    return _many_rotated(lanes, 31) * _N1


def _many_rotated(lanes: Hashes, by: int) -> Hashes:
    return (lanes << np.uint64(by)) | (lanes >> np.uint64(64 - by))
