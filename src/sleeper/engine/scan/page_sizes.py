"""Reads the sizes of pages from the first bytes of their headers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from sleeper.lookup.parquet.compact_protocol import read_struct
from sleeper.lookup.parquet.pages import Buffer


def all_small(data: Buffer, heads: Sequence[int]) -> bool:
    """Return whether pages surely become less than 256 MiB together when decompressed.

    So it is if each becomes less than 1 MiB, and they are few.
    """
    return len(heads) <= _FEW and all(map(partial(_SMALL_PAGE.match, data), heads))


_FEW = 256
_SMALL_PAGE = re.compile(
    rb"\x15.\x15(?:[\x00-\x7f]|[\x80-\xff][\x00-\x7f]|[\x80-\xff]{2}[\x00-\x7f])", re.DOTALL
)
"""A page header whose second field, the size when decompressed, has at most three bytes."""


def inflated_size(data: Buffer, heads: Sequence[int]) -> int:
    """Return how many bytes pages become together when decompressed."""
    return sum(read_struct(bytes(data[head : head + _HEAD_BYTES]))[0][2] for head in heads)


_HEAD_BYTES = 16 << 10
"""More than a page header has, unless it carries statistics of long values."""


def page_sizes(data: Buffer, heads: Sequence[int]) -> tuple[list[int], list[int]] | None:
    """Return how large pages are when decompressed, and in the file, by their headers.

    Args:
        data: The pages.
        heads: Where each begins.

    Returns:
        The sizes of their bodies; None if a header has a rare form, or a page has 1 MiB or more.
    """
    inflated, compressed = list[int](), list[int]()
    try:
        for head in heads:
            if data[head] != _NUMBER or data[head + 2] != _NUMBER:
                return None
            size, at = data[head + 3], head + 4
            if size > _LAST:
                size, at = _longer_varint(data, size, at)
            if data[at] != _NUMBER:
                return None
            own_size = data[at + 1]
            if own_size > _LAST:
                own_size, at = _longer_varint(data, own_size, at + 2)
            if (size | own_size) & 1:
                return None
            inflated.append(size >> 1)
            compressed.append(own_size >> 1)
    except (IndexError, ValueError):
        return None
    return inflated, compressed


_NUMBER = 0x15  # the header of a field of 32 bits whose number is one more than the last one's
_LAST = 127  # the greatest last byte of a varint


def _longer_varint(data: Buffer, first: int, at: int) -> tuple[int, int]:
    """Return a varint of two or three bytes, and where it ends.

    Args:
        data: The header.
        first: The varint's first byte.
        at: The place of the second.

    Raises:
        ValueError: it is longer.
    """
    value = first + ((data[at] - 1) << 7)
    if data[at] <= _LAST:
        return value, at + 1
    value += (data[at + 1] - 1) << 14
    if data[at + 1] > _LAST:
        raise ValueError
    return value, at + 2
