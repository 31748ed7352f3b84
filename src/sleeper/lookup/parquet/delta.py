"""Delta encodings: numbers as differences to the number before, packed into bits, and byte arrays
whose lengths are such numbers.

    block size | parts of a block | number of values | first value | blocks
    block = least difference | bits of a difference in each part | parts

A difference is packed without the least one of its block. The loop here is over blocks, of 128
values or more; the bits of all parts are unpacked at once.

Source: parquet-format, Encodings.md (DELTA_BINARY_PACKED, DELTA_LENGTH_BYTE_ARRAY).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from sleeper.lookup.parquet.compact_protocol import read_varint
from sleeper.lookup.parquet.page_index import Ints
from sleeper.value_classes import dataclass

_Words = npt.NDArray[np.uint64]

_BLOCK_MAX = 1 << 16
"""Numbers of a block; writers have 128 or 256."""

_PADDING = bytes(16)
_WORD = 64
_ONE_LOAD_MAX = _WORD - 7
"""A number of so many bits is inside the eight bytes from its first byte on."""


def read_numbers(data: bytes, count: int, width: int) -> bytes:
    """Return delta-encoded integers of `width` bytes as PLAIN would have them.

    Raises:
        ValueError: they are damaged, have another count, or do not fill `data`.
    """
    if width not in {4, 8}:
        raise ValueError("a page has numbers of a type that is not encoded so")
    values, end = _read(data, count, width)
    if end != len(data):
        raise ValueError("a page's numbers do not fill it")
    if isinstance(values, int):
        return (values % (1 << 8 * width)).to_bytes(width, "little") * count
    return values.astype(f"<u{width}").tobytes()


def read_lengths(data: bytes, count: int) -> tuple[int | Ints, int]:
    """Return the lengths of byte arrays, and where their bytes begin; one number if all are equal.

    Raises:
        ValueError: they are damaged, or do not add up to the rest of `data`.
    """
    found, end = _read(data, count, 4)
    if isinstance(found, int):
        if found < 0 or found * count != len(data) - end:
            raise ValueError("a page's byte arrays do not fill it")
        return found, end
    lengths = found.astype(np.uint32).view(np.int32).astype(np.int64)
    if int(lengths.min()) < 0 or int(lengths.sum()) != len(data) - end:
        raise ValueError("a page's byte arrays do not fill it")
    return lengths, end


@dataclass(frozen=True, slots=True)
class _Header:
    """What precedes the blocks.

    Attributes:
        size: Numbers of a block.
        parts: Parts of a block.
        count: Numbers in all, the first included.
        first: The first.
        at: Where the blocks begin.
    """

    size: int
    parts: int
    count: int
    first: int
    at: int

    @property
    def part(self) -> int:
        """Numbers of a part."""
        return self.size // self.parts


def _header(data: bytes, count: int) -> _Header:
    try:
        size, at = read_varint(data, 0)
        parts, at = read_varint(data, at)
        found, at = read_varint(data, at)
        first, at = read_varint(data, at)
    except IndexError:
        raise ValueError("a page's numbers end within their header") from None
    if found != count:
        raise ValueError("a page holds another number of values than its header says")
    if parts < 1 or not 0 < size <= _BLOCK_MAX or size % parts or (size // parts) % 8:
        raise ValueError("a page's numbers have impossible blocks")
    return _Header(size, parts, count, (first >> 1) ^ -(first & 1), at)


def _blocks(data: bytes, header: _Header, width: int) -> Iterator[tuple[int, bytes, int]]:
    """Yield of each block its least difference, the bits of its parts, and where these begin."""
    at, end, left = header.at, len(data), header.count - 1
    parts, part, widest = header.parts, header.part, 8 * width
    while left > 0:
        minimum = shift = 0
        while True:
            if at >= end or shift > _WORD:
                raise ValueError("a page's numbers are damaged")
            byte = data[at]
            at += 1
            minimum |= (byte & 127) << shift
            if byte < 128:
                break
            shift += 7
        widths = data[at : at + parts]
        at += parts
        if left < header.size:  # the last parts may be absent
            widths = widths[: -(-left // part)]
        start = at
        at += sum(widths) * part >> 3
        if at > end or max(widths, default=widest + 1) > widest:
            raise ValueError("a page's numbers are damaged")
        yield (minimum >> 1) ^ -(minimum & 1), widths, start
        left -= header.size


def _read(data: bytes, count: int, width: int) -> tuple[int | _Words, int]:
    """Read numbers modulo 2 ** 64, and where they end; one number if all are equal."""
    if count == 0:
        return 0, len(data)
    header = _header(data, count)
    same = -(-(count - 1) // header.size) * (1 + header.parts)
    if data[header.at : header.at + same] == bytes(same):  # all differences are 0, in no bits
        return header.first, header.at + same
    end = header.at
    lows: list[int] = []
    places: list[int] = []
    widths: list[int] = []
    for minimum, some, start in _blocks(data, header, width):
        lows.append(minimum % (1 << _WORD))
        widths += some
        end = start
        for bits in some:
            places.append(end)
            end += bits * header.part >> 3
    values = np.empty(count, np.uint64)
    values[0] = header.first % (1 << _WORD)
    packed = _unpacked(data, places, widths, header.part)[: count - 1]
    minimums = np.array(lows, np.uint64).repeat(header.size)
    np.add(packed, minimums[: count - 1], out=values[1:])
    return np.cumsum(values, dtype=np.uint64), end


def _unpacked(data: bytes, places: Sequence[int], widths: Sequence[int], part: int) -> _Words:
    """Return the numbers of parts, each with `part` numbers of its own width in bits."""
    codes = data + _PADDING
    words = np.ndarray((len(codes) - 7,), "<u8", codes, 0, (1,))
    bits = np.array(widths, np.int64)[:, None]
    starts = np.array(places, np.int64)[:, None] * 8 + bits * np.arange(part)
    first_bytes = starts >> 3
    shifts = (starts & 7).astype(np.uint64)
    found: _Words = words[first_bytes] >> shifts
    if max(widths) > _ONE_LOAD_MAX:  # the rest of a number is in the ninth byte
        rest = (words[first_bytes + 8] & np.uint64(255)) << (np.uint64(63) - shifts)
        found |= rest << np.uint64(1)
    found &= np.array([(1 << width) - 1 for width in widths], np.uint64)[:, None]
    return found.reshape(-1)
