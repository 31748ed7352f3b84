"""Delta encodings: numbers as differences to the number before, packed into bits, and byte arrays
whose lengths are such numbers.

    block size | parts of a block | number of values | first value | blocks
    block = least difference | bits of a difference in each part | parts

A difference is packed without the least one of its block. The loop here is over blocks, of 128
values or more; the bits of all parts are unpacked at once.

Source: parquet-format, Encodings.md (DELTA_BINARY_PACKED, DELTA_LENGTH_BYTE_ARRAY).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from sleeper.lookup.parquet.compact_protocol import read_varint
from sleeper.lookup.parquet.page_index import Ints

_Words = npt.NDArray[np.uint64]

_BLOCK_MAX = 1 << 16
"""Numbers of a block; writers have 128 or 256."""

_PADDING = bytes(16)
_WORD = 64
_WORD_MASK = (1 << _WORD) - 1
_ONE_LOAD_MAX = _WORD - 7
"""A number of so many bits is inside the eight bytes from its first byte on."""


def read_numbers(data: bytes, count: int, width: int, needed: int | None = None) -> bytes:
    """Return delta-encoded integers of `width` bytes as PLAIN would have them.

    Args:
        data: The values of a page.
        count: How many there are.
        width: Bytes of one, when decoded.
        needed: How many of the first are wanted; all if None. What follows is not looked at.

    Raises:
        ValueError: they are damaged, have another count, or do not fill `data`.
    """
    if width not in {4, 8}:
        raise ValueError("a page has numbers of a type that is not encoded so")
    wanted = count if needed is None else min(needed, count)
    values, end = _read(data, count, width, wanted)
    if end != len(data) and wanted == count:
        raise ValueError("a page's numbers do not fill it")
    if isinstance(values, int):
        return (values % (1 << 8 * width)).to_bytes(width, "little") * wanted
    if width == 8:
        return values[:wanted].tobytes()
    return values[:wanted].astype("<u4").tobytes()


def read_lengths(
    data: bytes, count: int, start: int = 0, end: int | None = None
) -> tuple[int | Ints, int]:
    """Return the lengths of byte arrays, and where their bytes begin; one number if all are equal.

    Args:
        data: Has the values of a page from `start` to `end`, or to its own end.
        count: How many there are.
        start: Where they start.
        end: Where they end.

    Raises:
        ValueError: they are damaged, or do not add up to the rest of the page.
    """
    end = len(data) if end is None else end
    found, at = _read(data, count, 4, count, start) if count else (0, end)
    if isinstance(found, int):
        if found < 0 or found * count != end - at:
            raise ValueError("a page's byte arrays do not fill it")
        return found, at
    lengths = found.astype(np.uint32).view(np.int32).astype(np.int64)
    if int(lengths.min()) < 0 or int(lengths.sum()) != end - at:
        raise ValueError("a page's byte arrays do not fill it")
    return lengths, at


def _read(
    data: bytes, count: int, width: int, needed: int, at: int = 0
) -> tuple[int | _Words, int]:
    """Read numbers modulo 2 ** 64 from `at` on, and where they end; one number if all are equal.

    Of `count` numbers at least the first `needed` are read.
    """
    if count == 0:
        return 0, len(data)
    try:
        size, at = read_varint(data, at)
        parts, at = read_varint(data, at)
        found, at = read_varint(data, at)
        first, at = read_varint(data, at)
    except IndexError:
        raise ValueError("a page's numbers end within their header") from None
    if found != count:
        raise ValueError("a page holds another number of values than its header says")
    if parts < 1 or not 0 < size <= _BLOCK_MAX or size % parts or (size // parts) % 8:
        raise ValueError("a page's numbers have impossible blocks")
    first = (first >> 1) ^ -(first & 1)
    same = -(-(count - 1) // size) * (1 + parts)
    if data[at : at + same] == bytes(same):  # all differences are 0, in no bits
        return first, at + same
    return _differing(data, at, (size, size // parts), (first, count, needed), width)


def _differing(
    data: bytes, at: int, sizes: tuple[int, int], counts: tuple[int, int, int], width: int
) -> tuple[_Words, int]:
    """Read blocks; `sizes` are the numbers of a block and of a part, `counts` as for `_read`."""
    (size, part), (first, count, needed) = sizes, counts
    parts, end, left, widest = size // part, len(data), count - 1, 8 * width
    lows: list[int] = []
    places: list[int] = []
    widths: list[int] = []
    while left > count - needed or not lows:
        low = shift = 0
        while True:
            if at >= end or shift > _WORD:
                raise ValueError("a page's numbers are damaged")
            byte = data[at]
            at += 1
            low |= (byte & 127) << shift
            if byte < 128:
                break
            shift += 7
        lows.append(((low >> 1) ^ -(low & 1)) & _WORD_MASK)
        some = data[at : at + parts]
        at += parts
        if left < size:  # the last parts may be absent
            some = some[: -(-left // part)]
        for bits in some:
            places.append(at)
            at += bits * part >> 3
        if at > end or max(some, default=widest + 1) > widest:
            raise ValueError("a page's numbers are damaged")
        widths += some
        left -= size
    packed = _unpacked(data, places, widths, part)[: count - 1]
    minimums = np.array(lows, np.uint64).repeat(size)
    values = np.empty(len(packed) + 1, np.uint64)
    values[0] = first & _WORD_MASK
    np.add(packed, minimums[: len(packed)], out=values[1:])
    return values.cumsum(dtype=np.uint64), at


def _unpacked(data: bytes, places: Sequence[int], widths: Sequence[int], part: int) -> _Words:
    """Return the numbers of parts, each with `part` numbers of its own width in bits."""
    codes = data + _PADDING
    words = np.ndarray((len(codes) - 7,), "<u8", codes, 0, (1,))
    width = widths[0]
    if width <= _ONE_LOAD_MAX and widths.count(width) == len(widths):
        first_bytes, shifts, mask = _places_of_width(part, width)
        found: _Words = words[np.array(places, np.int64)[:, None] + first_bytes]
        found >>= shifts
        found &= mask
        return found.reshape(-1)
    bits = np.array(widths, np.intp)
    first_bytes, shifts, masks = _bit_places(part)
    from_bytes = first_bytes[bits]
    from_bytes += np.array(places, np.int64)[:, None]
    found = words[from_bytes]
    found >>= shifts[bits]
    if max(widths) > _ONE_LOAD_MAX:  # the rest of a number is in the ninth byte
        rest = (words[from_bytes + 8] & np.uint64(255)) << (np.uint64(63) - shifts[bits])
        found |= rest << np.uint64(1)
    found &= masks[bits]
    return found.reshape(-1)


@lru_cache(maxsize=256)
def _places_of_width(part: int, width: int) -> tuple[Ints, _Words, np.uint64]:
    """Return one width's row of `_bit_places`."""
    first_bytes, shifts, masks = _bit_places(part)
    return first_bytes[width], shifts[width], masks[width, 0]


@lru_cache(maxsize=8)
def _bit_places(part: int) -> tuple[Ints, _Words, _Words]:
    """Return for each width in bits: bytes and bits where numbers of a part begin, and a mask."""
    bits = np.arange(_WORD + 1)[:, None] * np.arange(part)
    masks = np.array([[(1 << width) - 1] for width in range(_WORD + 1)], np.uint64)
    return bits >> 3, (bits & 7).astype(np.uint64), masks
