"""Divides a group that is too large for memory into key ranges that can be sorted separately.

The first key of every block of a run is known, so ranges are planned without reading rows.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

import pyarrow as pa

from sleeper.engine.sorting.key_order import key_at
from sleeper.engine.sorting.spill import Block, SpillFile
from sleeper.language.value_classes import dataclass

# A cut between keys: (key, False) is before all rows of the key, (key, True) after them.
Cut = tuple[tuple[Any, ...], bool]


@dataclass(frozen=True, slots=True)
class SubRange:
    """The rows between two cuts; None is no limit."""

    low: Cut | None
    high: Cut | None

    @property
    def is_one_key(self) -> bool:
        """True if all its rows have the same key, so that no sort is needed."""
        return self.low is not None and self.high is not None and self.low[0] == self.high[0]


def plan_sub_ranges(
    runs: Sequence[Sequence[Block]], need: Callable[[Block], int], need_max: int
) -> Iterator[SubRange]:
    """Yield ranges that cover all keys, in order.

    Sorting a range needs at most about `need_max` bytes, and one more block of each run, unless
    all its rows have one key. `need` returns the memory for sorting a block.
    """
    low: Cut | None = None
    planned = 0
    blocks = sorted((block for run in runs for block in run), key=lambda block: block.first_key)
    for key, same in groupby(blocks, key=lambda block: block.first_key):
        more = sum(map(need, same))
        if planned and planned + more > need_max:
            yield SubRange(low, (key, False))
            low, planned = (key, False), 0
        if more > need_max:
            if low != (key, False):
                yield SubRange(low, (key, False))
            yield SubRange((key, False), (key, True))
            low, more = (key, True), 0
        planned += more
    yield SubRange(low, None)


def read_sub_range(
    spill: SpillFile, runs: Sequence[Sequence[Block]], wanted: SubRange, key_names: Sequence[str]
) -> Iterator[pa.Table]:
    """Yield the rows of a range, run by run, a table for each run that has some."""
    for run in runs:
        blocks = _blocks_between(run, wanted)
        if blocks:
            rows = _rows_between(spill.read(blocks), wanted, key_names)
            if rows.num_rows:
                yield rows


def read_one_key(
    spill: SpillFile, runs: Sequence[Sequence[Block]], wanted: SubRange, key_names: Sequence[str]
) -> Iterator[pa.Table]:
    """Yield the rows of a range of one key, block by block."""
    for run in runs:
        for block in _blocks_between(run, wanted):
            rows = _rows_between(spill.read([block]), wanted, key_names)
            if rows.num_rows:
                yield rows


def _blocks_between(run: Sequence[Block], wanted: SubRange) -> Sequence[Block]:
    """Return the blocks of a run that may contain rows of the range."""
    start = 0 if wanted.low is None else max(0, _starting_before(run, wanted.low) - 1)
    stop = len(run) if wanted.high is None else _starting_before(run, wanted.high)
    return run[start:stop]


def _starting_before(run: Sequence[Block], cut: Cut) -> int:
    key, after = cut
    bisect = bisect_right if after else bisect_left
    return bisect(run, key, key=lambda block: block.first_key)


def _rows_between(rows: pa.Table, wanted: SubRange, key_names: Sequence[str]) -> pa.Table:
    start = 0 if wanted.low is None else _rows_before(rows, wanted.low, key_names)
    stop = rows.num_rows if wanted.high is None else _rows_before(rows, wanted.high, key_names)
    return rows.slice(start, max(0, stop - start))


def _rows_before(rows: pa.Table, cut: Cut, key_names: Sequence[str]) -> int:
    key, after = cut
    bisect = bisect_right if after else bisect_left
    return bisect(range(rows.num_rows), key, key=lambda row: key_at(rows, row, key_names))
