"""Sketches: quantiles of a data file's row keys, one distribution of values per row key field.

A file's rows are in key order, so rows at equal distances represent it better than random ones.
Each sketched row represents a known number of rows of its file, so sketches of files of any size
can be merged. `sketch_bytes` builds and stores them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from sleeper.engine.sorting.key_order import OrderedRows
from sleeper.errors import SplitPointsInvalid
from sleeper.model.column_types import Primitive, key_traits
from sleeper.model.keys import key_type, smallest_value
from sleeper.model.ranges import Range
from sleeper.model.schema import Field

# ---------------------------------------------------------------- systematic sample
#
# A systematic sample (every n-th row) of a stream of unknown length, in bounded memory.

_FIRST = pa.arange(0, 1)  # not pa.array, which imports pandas


class SystematicSample:
    """Every `stride`-th row, beginning with the first; all rows while there are few.

    When there are too many, every second one is dropped and the stride doubles. So the sample has
    between half the maximum and the maximum number of rows, each representing equally many.

    Attributes:
        rows_seen: Number of added rows.
        stride: Distance between sampled rows.
    """

    def __init__(self, rows_max: int, bytes_max: int) -> None:
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._parts: list[pa.Table] = []
        self._parts_bytes = 0
        self._last: pa.Table | None = None
        self._sampled = 0
        self.rows_seen = 0
        self.stride = 1

    def add(self, rows: pa.Table) -> None:
        """Add more rows, which follow those before."""
        if not rows.num_rows:
            return
        while self._sampled + len(self._wanted(rows)) > self._rows_max:
            self._halve()
        wanted = self._wanted(rows)
        if len(wanted):
            # A copy, also of all rows, so that the caller's memory can be released.
            part = rows.take(pa.array(np.arange(wanted.start, wanted.stop, wanted.step)))
            self._parts.append(part)
            self._parts_bytes += part.nbytes
            self._sampled += len(wanted)
        self.rows_seen += rows.num_rows
        self._last = rows.slice(rows.num_rows - 1).take(_FIRST)
        while self._sampled > 1 and self._parts_bytes > self._bytes_max:
            self._halve()

    def rows(self) -> pa.Table | None:
        """Return the sampled rows, None if there are none."""
        return pa.concat_tables(self._parts) if self._parts else None

    def rows_with_last(self) -> pa.Table | None:
        """Return the sampled rows and the last added row, once."""
        if not self.rows_seen or (self.rows_seen - 1) % self.stride == 0:
            return self.rows()
        return pa.concat_tables([*self._parts, self._last])

    def _wanted(self, rows: pa.Table) -> range:
        return range(-self.rows_seen % self.stride, rows.num_rows, self.stride)

    def _halve(self) -> None:
        self.stride *= 2
        if self._parts:
            together = pa.concat_tables(self._parts)
            kept = together.take(pa.array(np.arange(0, self._sampled, 2)))
            self._parts, self._parts_bytes, self._sampled = [kept], kept.nbytes, kept.num_rows


_ESTIMATE_ROWS_MAX = 4_000_000
_ESTIMATE_BYTES_MAX = 256 << 20


@dataclass(frozen=True, slots=True)
class Distribution:
    """Values of one field in order, in the form of a sketch, with how many rows each represents.

    Attributes:
        kind: The type of the field.
        values: The values: numbers, or bytes; `number_of` converts a value of the field.
        rows_until: The cumulative number of rows, one for each value.
    """

    kind: Primitive
    values: Sequence[Any]
    rows_until: Sequence[int]


@dataclass(frozen=True, slots=True)
class Sketches:
    """The distribution of row keys in one file or several; a dimension is a row key field.

    Attributes:
        row_count: Number of described rows.
        distributions: The values of each dimension.
    """

    row_count: int
    distributions: tuple[Distribution, ...]

    @property
    def is_exact(self) -> bool:
        """Whether every row is sketched, so that nothing is an estimate."""
        return all(len(each.values) == self.row_count for each in self.distributions)

    def quantile(self, dimension: int, fraction: float) -> Any:
        """Return the key value below which `fraction` of the rows are; 0 and 1 give the ends.

        If every row is sketched, it is the item at index min(n - 1, floor(fraction * n)) of
        the n values in order (rule SPL-4).

        Raises:
            ValueError: there are no rows.
        """
        known = self.distributions[dimension]
        if not known.values:
            raise ValueError("a sketch of no rows has no quantiles")
        place = bisect_right(known.rows_until, fraction * self.row_count)
        return value_of(known.kind, known.values[min(place, len(known.values) - 1)])

    def rank(self, dimension: int, value: Any) -> float:
        """Return the fraction of rows whose key value is below `value`, from 0 to 1."""
        known = self.distributions[dimension]
        place = bisect_left(known.values, number_of(known.kind, value))
        return known.rows_until[place - 1] / self.row_count if place else 0.0

    def least_median_most(self, dimension: int, inside: Range) -> tuple[Any, Any, Any] | None:
        """Return the least, median and greatest value of a row key field of rows in a range.

        If every row is sketched, the median of n values in order is the one at index n // 2
        (rule SPL-4). None if no row is there.
        """
        known = self.distributions[dimension]
        first = bisect_left(known.values, number_of(known.kind, inside.min))
        last = len(known.values)
        if inside.max is not None:
            last = bisect_left(known.values, number_of(known.kind, inside.max))
        if first >= last:
            return None
        before = known.rows_until[first - 1] if first else 0
        half = before + (known.rows_until[last - 1] - before) // 2
        middle = min(bisect_right(known.rows_until, half), last - 1)
        least, median, most = (
            value_of(known.kind, known.values[n]) for n in (first, middle, last - 1)
        )
        return least, median, most

    def cut_points(self, dimension: int, inside: Range, parts: int) -> list[Any]:
        """Return values that cut the rows of a range into about equal parts, ascending.

        They are above the minimum of the range; fewer than `parts` - 1 if values repeat.
        """
        low = self.rank(dimension, inside.min)
        high = 1.0 if inside.max is None else self.rank(dimension, inside.max)
        fractions = (low + (high - low) * part / parts for part in range(1, parts))
        values = dict.fromkeys(self.quantile(dimension, each) for each in fractions)
        return [value for value in values if value in inside and value != inside.min]

    def next_above(self, dimension: int, inside: Range, value: Any) -> Any | None:
        """Return the least sketched value of a row key field above `value`; None without one."""
        known = self.distributions[dimension]
        place = bisect_right(known.values, number_of(known.kind, value))
        if place == len(known.values):
            return None
        above = value_of(known.kind, known.values[place])
        return above if above in inside else None


def union(sketches: Iterable[Sketches]) -> Sketches:
    """Return the distribution of the rows of several files, with equal weight for each row.

    Raises:
        ValueError: there are no rows.
    """
    parts = [part for part in sketches if part.row_count]
    if not parts:
        raise ValueError("there are no rows in these sketches")
    dimensions = zip(*(part.distributions for part in parts), strict=True)
    return Sketches(sum(part.row_count for part in parts), tuple(map(_merged, dimensions)))


def estimate_split_points(
    columns: Iterable[pa.ChunkedArray], field: Field, partitions: int
) -> list[Any]:
    """Return values of the first row key that divide its rows into about equal partitions.

    Sorts a sample of at most 4 million values. The points are strictly ascending; there are
    fewer than requested if values repeat (rule TBL-10).

    Args:
        columns: The values, in parts. Nulls are ignored.
        field: The first row key.
        partitions: The wanted number of partitions, at least 2.

    Raises:
        SplitPointsInvalid: fewer than 2 partitions are requested.
    """
    if partitions < 2:
        raise SplitPointsInvalid(f"there must be at least 2 partitions, not {partitions}")
    sample = SystematicSample(_ESTIMATE_ROWS_MAX, _ESTIMATE_BYTES_MAX)
    for column in columns:
        sample.add(pa.table({field.name: column.drop_null()}))
    rows = sample.rows()
    if rows is None:
        return []
    ordered = OrderedRows(rows, [field.name])
    places = [part * rows.num_rows // partitions for part in range(1, partitions)]
    values = [ordered.take(place, place + 1).column(0)[0].as_py() for place in places]
    return [value for value in dict.fromkeys(values) if value != smallest_value(key_type(field))]


def _merged(parts: tuple[Distribution, ...]) -> Distribution:
    weighted = [
        (value, until - before)
        for part in parts
        for value, (before, until) in zip(part.values, pairwise([0, *part.rows_until]), strict=True)
    ]
    weighted.sort(key=itemgetter(0))
    values, weights = zip(*weighted, strict=True)
    return Distribution(parts[0].kind, values, list(accumulate(weights)))


def number_of(kind: Primitive, value: Any) -> Any:
    """Return a value of a field in the form of a sketch, which has the same order."""
    return key_traits(kind).to_item(value)


def value_of(kind: Primitive, item: Any) -> Any:
    """Return an item of a sketch as a value of its field; the inverse of `number_of`.

    Raises:
        ValueError, OverflowError: it is no value of this type.
    """
    return key_traits(kind).from_item(item)
