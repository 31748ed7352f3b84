"""Definition and repetition levels: small numbers that mark null values of a page.

Levels are two kinds of runs, each preceded by a varint: one repeated level, or groups of eight
levels packed into bits. Only levels of flat optional columns, which are 0 (null) or 1, are expanded
here. For all others only their number is checked.

Source: parquet-format, Encodings.md (RLE / bit-packing hybrid).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sleeper.lookup.parquet.compact_protocol import read_varint

Flags = npt.NDArray[np.bool_]
"""One flag for each row: whether it has a value."""

_BYTE_OF_LEVEL = (b"\x00", b"\x01")


def present_rows(levels: bytes, count: int) -> Flags | None:
    """Return which of `count` rows of a flat optional column have a value; None if all have one.

    Needs at most nine bytes a row, and eight for each byte of `levels`.

    Raises:
        ValueError: the number of levels differs from `count`, they do not end with their bytes,
            or are larger than 1.
    """
    if len(levels) < 12:  # One run, as in nearly all pages without nulls: no loop is needed.
        run, at = read_varint(levels + b"\x00", 0)
        if run == count << 1 and at + 1 == len(levels) and levels[at] < 2:
            return None if levels[at] else np.zeros(count, np.bool_)
    one_byte_each = _expanded(levels, count)
    present = np.frombuffer(one_byte_each, np.bool_, count)
    return None if np.count_nonzero(present) == count else present


def _expanded(levels: bytes, count: int) -> bytes:
    """Return the levels as one byte each, possibly with some padding at the end.

    The loop is over runs. A run of one level is eight rows long or longer, for all writers that we
    know of.
    """
    packed = np.unpackbits(np.frombuffer(levels, np.uint8), bitorder="little").tobytes()
    parts = []
    at = found = 0
    end = len(levels)
    while at < end and found < count:
        run = levels[at]
        at += 1
        if run > 127:
            run, at = _long_run(levels, at - 1)
        length = run >> 1
        if run & 1:
            parts.append(packed[8 * at : 8 * (at + length)])
            at += length
            found += 8 * length
        else:
            if at == end or length > count - found or levels[at] > 1:
                raise ValueError("a page's levels are damaged")
            parts.append(_BYTE_OF_LEVEL[levels[at]] * length)
            at += 1
            found += length
    if at != end or not count <= found < count + 8:
        raise ValueError("a page's levels do not fit its header")
    return b"".join(parts)


def _long_run(levels: bytes, at: int) -> tuple[int, int]:
    try:
        return read_varint(levels, at)
    except IndexError:
        raise ValueError("a page's levels end within a number") from None


def levels_fill(levels: bytes, level_max: int, count: int) -> bool:
    """Return whether RLE and bit-packed runs have `count` levels and end with the bytes."""
    if level_max == 0:
        return len(levels) == 0
    width = level_max.bit_length()
    at = found = 0
    while at < len(levels) and found < count:
        run, at = read_varint(levels, at)
        if run & 1:
            found += (run >> 1) * 8
            at += (run >> 1) * width
        else:
            found += run >> 1
            at += (width + 7) // 8
    return at == len(levels) and count <= found < count + 8
