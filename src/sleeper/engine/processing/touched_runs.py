"""Finds the runs of rows in a stream that some keys touch, and ranges of keys that cover them.

A row is touched if the value of its first row key field is that of one of the keys. A run is made
of touched rows that follow each other. Few ranges cover many runs: those rows between two runs that
no key touches are covered as well, unless the gap is large enough to begin another range after it.

Memory is that of the keys, as there are no more runs than distinct values, until they are `joined`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.engine.processing.known_keys import has_key, keys_between

_LOOK_FROM: Final = 100_000
_LOOK_AGAIN: Final = 1.5
"""Whether limits allow the runs is looked at after so many rows, and after each half more."""

Places = npt.NDArray[np.int64]


@dataclass(slots=True)
class TouchedRuns:
    """Where a stream of rows in key order is touched by keys.

    Attributes:
        rows: Rows of the stream.
        with_keys: How many of them have one of the keys.
        some_keys: The keys that they have, row by row, up to a number that was asked for; None if
            there are more.
        firsts: The place of the first row of each run.
        lasts: The place of the last row of each run.
        lows: The value of the first field in the first row of each run.
        highs: The same in the last row.
    """

    rows: int = 0
    with_keys: int = 0
    some_keys: pa.Table | None = None
    firsts: Places = field(default_factory=lambda: np.empty(0, np.int64))
    lasts: Places = field(default_factory=lambda: np.empty(0, np.int64))
    lows: pa.ChunkedArray = field(default_factory=lambda: pa.chunked_array([pa.nulls(0)]))
    highs: pa.ChunkedArray = field(default_factory=lambda: pa.chunked_array([pa.nulls(0)]))

    def covered(self) -> int:
        """Return how many rows the runs have."""
        return int((self.lasts - self.firsts + 1).sum())

    def gaps(self) -> Places:
        """Return how many rows are between each run and the next one."""
        return self.firsts[1:] - self.lasts[:-1] - 1

    def joined(self, runs_max: int, gap_min: int) -> TouchedRuns:
        """Return it with few runs: those with less than `gap_min` rows between them are joined."""
        is_cut = _widest(self.gaps(), runs_max - 1, gap_min)
        some = np.ones(min(1, len(self.firsts)), np.bool_)
        begins, ends = np.concatenate([some, is_cut]), np.concatenate([is_cut, some])
        return replace(
            self,
            firsts=self.firsts[begins],
            lasts=self.lasts[ends],
            lows=self.lows.filter(pa.array(begins)),
            highs=self.highs.filter(pa.array(ends)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLimits:
    """How runs may be covered.

    Attributes:
        runs_max: So many ranges.
        gap_min: Runs with fewer rows between them have a range together.
        others_max: So many rows in ranges may have none of the keys.
        keys_max: Up to so many keys that rows have are kept, whatever their runs.
    """

    runs_max: int
    gap_min: int
    others_max: float
    keys_max: int

    def allow(self, runs: TouchedRuns) -> bool:
        """Return whether ranges that have few other rows may cover runs, or those to come."""
        if runs.some_keys is not None:
            return True
        joined = runs.joined(self.runs_max, self.gap_min)
        return joined.covered() - runs.with_keys <= self.others_max


def touched_runs(
    chunks: Iterable[pa.Table], keys: pa.Table, limits: RunLimits
) -> TouchedRuns | None:
    """Find the runs of rows that keys touch; None once it is known that limits do not allow them.

    More rows have more runs, and a cover of all is a cover of those before. So it is known early.

    Args:
        chunks: The row key columns of rows, in key order.
        keys: The row keys, in key order.
        limits: How the runs may be covered.
    """
    found, looked_at = _Found(keys), _LOOK_FROM
    for chunk in chunks:
        found.add(chunk, limits.keys_max)
        if found.runs.rows >= looked_at:
            if not limits.allow(found.ended()):
                return None
            looked_at = int(found.runs.rows * _LOOK_AGAIN)
    runs = found.ended()
    return runs if limits.allow(runs) else None


class _Found:
    """What was found so far in a stream."""

    def __init__(self, keys: pa.Table) -> None:
        self.runs = TouchedRuns(some_keys=keys.slice(0, 0))
        self._keys = keys
        self._firsts, self._lasts = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        self._lows, self._highs = [keys.column(0).slice(0, 0)], [keys.column(0).slice(0, 0)]
        self._before: pa.Array | None = None
        """The value of the row before, if that was touched."""

    def add(self, chunk: pa.Table, keys_max: int) -> None:
        """Note the runs of a chunk, which has a row at least."""
        runs, before = self.runs, self._before
        column = chunk.column(self._keys.column_names[0]).combine_chunks()
        near = keys_between(self._keys, column[0].as_py(), column[-1].as_py())
        values = near.column(0).combine_chunks()
        touched = pc.is_in(column, value_set=values).to_numpy(zero_copy_only=False)
        last = np.concatenate([[before is not None], touched[:-1]])
        begun, ended = np.flatnonzero(touched & ~last), np.flatnonzero(last & ~touched)
        self._firsts.append(begun + runs.rows)
        self._lows.append(pa.chunked_array([column.take(begun)]))
        self._lasts.append(ended + runs.rows - 1)
        if before is not None and len(ended) and ended[0] == 0:
            self._highs.append(pa.chunked_array([before]))
            ended = ended[1:]
        self._highs.append(pa.chunked_array([column.take(ended - 1)]))
        self._before = column.slice(len(column) - 1) if touched[-1] else None
        runs.rows += chunk.num_rows
        _note_keys(runs, chunk.filter(touched), self._keys, keys_max)

    def ended(self) -> TouchedRuns:
        """Return the runs as if the stream had ended."""
        open_lasts, open_highs = list[Places](), list[pa.ChunkedArray]()
        if self._before is not None:
            open_lasts.append(np.array([self.runs.rows - 1]))
            open_highs.append(pa.chunked_array([self._before]))
        return replace(
            self.runs,
            firsts=np.concatenate(self._firsts),
            lasts=np.concatenate([*self._lasts, *open_lasts]),
            lows=_joined(self._lows),
            highs=_joined([*self._highs, *open_highs]),
        )


def _note_keys(found: TouchedRuns, touched: pa.Table, keys: pa.Table, keys_max: int) -> None:
    """Count the rows that have one of the keys, and keep their keys while they are few."""
    if not touched.num_rows:
        return
    here = touched if keys.num_columns == 1 else touched.filter(has_key(touched, keys))
    found.with_keys += here.num_rows
    if found.some_keys is not None:
        both = pa.concat_tables([found.some_keys, here.select(keys.column_names)])
        found.some_keys = both if both.num_rows <= keys_max else None


def _joined(parts: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
    chunks = [chunk for part in parts for chunk in part.chunks]
    return pa.chunked_array(chunks, parts[0].type)


def joined_over_leaves(
    leaves: Sequence[TouchedRuns], runs_max: int, gap_min: int
) -> list[TouchedRuns]:
    """Join the runs of several leaves until they are few in all.

    Args:
        leaves: The runs of each leaf. Each that has some keeps one at least.
        runs_max: So many runs in all, but for leaves that are more.
        gap_min: Runs with fewer rows between them are joined in any case.
    """
    gaps = np.concatenate([np.empty(0, np.int64), *(each.gaps() for each in leaves)])
    more = runs_max - sum(bool(len(each.firsts)) for each in leaves)
    is_cut, place, found = _widest(gaps, more, gap_min), 0, []
    for leaf in leaves:
        end = place + len(leaf.gaps())
        cuts = int(np.count_nonzero(is_cut[place:end]))
        found.append(leaf.joined(cuts + 1, gap_min))
        place = end
    return found


def _widest(gaps: Places, count: int, gap_min: int) -> npt.NDArray[np.bool_]:
    """Tell the widest gaps from others: the first ones of those that are equal."""
    found = np.zeros(len(gaps), np.bool_)
    widest = np.argsort(-gaps, kind="stable")[: max(0, count)]
    found[widest[gaps[widest] >= gap_min]] = True
    return found
