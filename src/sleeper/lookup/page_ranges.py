"""Computes which pages contain which rows: pure arithmetic on sorted row ranges.

A set of rows is two arrays, `starts` and `ends`: ascending, disjoint, half-open ranges.
"""

from __future__ import annotations

import numpy as np

from sleeper.language.value_classes import dataclass
from sleeper.lookup.parquet.page_index import Bounds, PageBounds
from sleeper.lookup.values import Ints, positions


@dataclass(frozen=True, slots=True)
class Cover:
    """The pages that contain some rows, and the positions of these rows in the concatenated pages.

    Attributes:
        pages: Numbers of the pages, ascending.
        row_count: Rows in these pages.
        starts, ends: The rows, as positions in the concatenated pages.
    """

    pages: Ints
    row_count: int
    starts: Ints
    ends: Ints


def cover_rows(first_rows: Ints, starts: Ints, ends: Ints) -> Cover:
    """Choose the pages that contain the rows.

    Args:
        first_rows: First row of each page, and the row count at the end.
        starts: First rows of the ranges.
        ends: Ends of the ranges.
    """
    low = first_rows.searchsorted(starts, "right") - 1
    high = first_rows.searchsorted(ends, "left")
    pages = covered(low, high, len(first_rows) - 1)
    sizes = first_rows[pages + 1] - first_rows[pages]
    before = np.cumsum(sizes) - sizes
    page_of_start = pages.searchsorted(low)
    local = before[page_of_start] + starts - first_rows[low]
    return Cover(pages, int(sizes.sum()), local, local + (ends - starts))


def cover_span(first_rows: Ints, start: int, end: int) -> Cover:
    """Choose the pages that contain the rows [start, end): a faster `cover_rows` for one range."""
    page = int(first_rows.searchsorted(start, "right")) - 1
    page_end = int(first_rows.searchsorted(end, "left"))
    base = int(first_rows[page])
    return Cover(
        np.arange(page, page_end),
        int(first_rows[page_end]) - base,
        np.array((start - base,)),
        np.array((end - base,)),
    )


def covered(low: Ints, high: Ints, count: int) -> Ints:
    """Return the numbers below `count` that lie in some [low, high), ascending."""
    some = high > low
    steps = np.zeros(count + 1, np.int64)
    np.add.at(steps, low[some], 1)
    np.add.at(steps, high[some], -1)
    return np.flatnonzero(np.cumsum(steps)[:count] > 0)


def pages_of_keys(bounds: PageBounds, keys: Bounds) -> tuple[Ints, Ints]:
    """Return for each key the pages [low, high) of a sorted column that may contain it."""
    low = bounds.maximums.searchsorted(keys, "left")
    high = bounds.minimums.searchsorted(keys, "right")
    return low, high


def pages_with_any(bounds: PageBounds, keys: Bounds) -> Ints:
    """Return the pages of any column that may contain some of the ascending keys."""
    low = keys.searchsorted(bounds.minimums, "left")
    high = keys.searchsorted(bounds.maximums, "right")
    return np.flatnonzero(high > low)


def clip(starts: Ints, ends: Ints, first_rows: Ints, pages: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the parts of the ranges that are in `pages`, and for each the number of its range."""
    page_starts, page_ends = first_rows[pages], first_rows[pages + 1]
    low = page_ends.searchsorted(starts, "right")
    high = page_starts.searchsorted(ends, "left")
    some = np.maximum(high - low, 0)
    which = np.repeat(np.arange(len(starts)), some)
    page = positions(low, low + some)
    return (
        np.maximum(starts[which], page_starts[page]),
        np.minimum(ends[which], page_ends[page]),
        which,
    )


def as_ranges(rows: Ints, codes: Ints) -> tuple[Ints, Ints, Ints]:
    """Join consecutive rows with the same code into ranges with their code."""
    if len(rows) == 0:
        return rows, rows, codes
    breaks = np.flatnonzero((rows[1:] != rows[:-1] + 1) | (codes[1:] != codes[:-1])) + 1
    first = np.concatenate(([0], breaks))
    last = np.concatenate((breaks, [len(rows)])) - 1
    return rows[first], rows[last] + 1, codes[first]
