"""Indexes of a dictionary: runs of one repeated number, and numbers packed into bits.

    bits of a number | runs
    run = twice its length | the number          a repeated number
    run = twice its groups of eight, and 1 | the numbers, packed

The loop here is over runs, of eight numbers or more; numbers are unpacked all at once, and only
those that are wanted.

Source: parquet-format, Encodings.md (RLE / bit-packing hybrid, dictionary encoding).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sleeper.lookup.parquet.compact_protocol import read_varint
from sleeper.lookup.parquet.page_index import Ints

_WIDTH_MAX = 32
_WORD_BYTES = 8
"""A number of up to 32 bits is inside the eight bytes from its first byte on."""


class Runs(NamedTuple):
    """The runs of one or several pages, one after the other.

    Attributes:
        data: The bytes of the pages.
        firsts: The position of the first number of each run.
        widths: Bits of a number; 0 if a run repeats one.
        origins: The bit of `data` at which number 0 would be, if all were packed as in this run.
        numbers: The number that a run repeats; 0 if its numbers are packed.
        length: How many numbers there are.
    """

    data: bytes
    firsts: Sequence[int]
    widths: Sequence[int]
    origins: Sequence[int]
    numbers: Sequence[int]
    length: int

    def one(self, position: int) -> int:
        """Return the number at a position below `length`: much quicker than `at`."""
        run = bisect_right(self.firsts, position) - 1
        width = self.widths[run]
        if not width:
            return self.numbers[run]
        bit = self.origins[run] + position * width
        at = bit >> 3
        word = int.from_bytes(self.data[at : at + _WORD_BYTES], "little")
        return (word >> (bit & 7)) & ((1 << width) - 1)

    def at(self, positions: Ints) -> Ints:
        """Return the numbers at some positions, each below `length`."""
        data = self.data + bytes(_WORD_BYTES)
        run = np.array(self.firsts, np.int64).searchsorted(positions, "right") - 1
        widths = np.array(self.widths, np.int64)[run]
        bits = np.array(self.origins, np.int64)[run] + positions * widths
        words: Ints = np.ndarray((len(data) - 7,), "<i8", data, 0, (1,))[bits >> 3]
        words >>= bits & 7
        words &= (1 << widths) - 1
        words += np.array(self.numbers, np.int64)[run]
        return words


def read_runs(pages: Sequence[tuple[bytes, int]], needed: int | None = None) -> Runs:
    """Read the runs of pages.

    Args:
        pages: The values of each page, and how many they are.
        needed: How many of the first are wanted, if it is one page; all if None. What follows is
            not looked at.

    Raises:
        ValueError: they are damaged, or have fewer numbers.
    """
    firsts, widths, origins, numbers = list[int](), list[int](), list[int](), list[int]()
    base = before = 0
    for data, count in pages:
        wanted = count if needed is None else min(needed, count)
        if not wanted:
            continue
        width = data[0] if data else _WIDTH_MAX + 1
        if width > _WIDTH_MAX:
            raise ValueError("a page's indexes have an impossible width")
        repeated = (width + 7) // 8
        at, found, end = 1, 0, len(data)
        while found < wanted:
            if at >= end:
                raise ValueError("a page holds fewer indexes than its header says")
            run = data[at]
            at += 1
            if run > 127:
                run, at = _long_run(data, at - 1)
            firsts.append(before + found)
            if run & 1:
                widths.append(width)
                origins.append(8 * (base + at) - width * (before + found))
                numbers.append(0)
                at += (run >> 1) * width
                found += (run >> 1) * 8
            else:
                widths.append(0)
                origins.append(0)
                numbers.append(int.from_bytes(data[at : at + repeated], "little"))
                at += repeated
                found += run >> 1
            if at > end:
                raise ValueError("a page's indexes are damaged")
        base += end
        before += wanted
    whole = pages[0][0] if len(pages) == 1 else b"".join([data for data, _ in pages])
    return Runs(whole, firsts, widths, origins, numbers, before)


def _long_run(data: bytes, at: int) -> tuple[int, int]:
    try:
        return read_varint(data, at)
    except IndexError:
        raise ValueError("a page's indexes end within a number") from None
