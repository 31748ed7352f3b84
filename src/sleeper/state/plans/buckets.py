"""Divides the rows of a bulk import into buckets, each written by one task.

A bucket is a group of neighbouring leaves, or a range of keys of a leaf that has far more rows
than others. Buckets have about equal numbers of rows, so no task takes much longer than the
others, and small leaves share a task.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import Any, Protocol

from sleeper.language.value_classes import dataclass
from sleeper.model.partitions import LeafGroup, Partition, leaf_groups

_FAR_MORE = 1.5  # times the wanted rows of a bucket: a larger leaf is cut
_LEAST_SHARE = 0.5  # of the wanted rows: from here on a group of leaves gets its own task


class LeafSample(Protocol):
    """A sample of the rows that a leaf will get."""

    @property
    def row_count(self) -> int:
        """Estimated number of rows."""
        ...

    def quantile(self, dimension: int, fraction: float) -> Any:
        """Return the value of a row key field below which `fraction` of the rows are."""
        ...


@dataclass(frozen=True, slots=True)
class Buckets:
    """The bucket of each row.

    A row's bucket follows from the range of the first row key that it is in, and if several
    leaves share that range, from its leaf.

    Attributes:
        leaves: The leaves of each bucket, in tree order. A leaf cut into ranges is in several.
        bounds: Bounds between ranges of the first row key, ascending; a bound belongs to the range
            above it.
        range_buckets: The bucket of each range, or the bucket of each leaf id in it.
    """

    leaves: tuple[tuple[Partition, ...], ...]
    bounds: tuple[Any, ...]
    range_buckets: tuple[int | Mapping[str, int], ...]

    def __len__(self) -> int:
        return len(self.leaves)

    def range_of(self, value: Any) -> int:
        """Return the index of the range that contains a value of the first row key."""
        return bisect_right(self.bounds, value)


def plan_buckets(
    leaves: Iterable[Partition], samples: Mapping[str, LeafSample], rows_wanted: int
) -> Buckets:
    """Divide leaves into buckets of about `rows_wanted` rows.

    Args:
        leaves: All leaves of the tree.
        samples: Samples of their rows, by leaf id; a leaf without a sample is assumed to get none.
        rows_wanted: Rows that a bucket should have, at least 1.
    """
    planned = _Plan(samples, rows_wanted)
    for group in leaf_groups(leaves):
        planned.add(group)
    return planned.buckets()


def plan_even_buckets(leaves: Iterable[Partition], count: int) -> Buckets:
    """Divide leaves evenly into `count` buckets, if the number of rows is not known."""
    all_leaves = [*leaves]
    samples = {leaf.partition_id: _OneRow() for leaf in all_leaves}
    return plan_buckets(all_leaves, samples, max(1, ceil(len(all_leaves) / max(1, count))))


class _OneRow:
    """The sample of a leaf whose number of rows is unknown."""

    row_count = 1

    def quantile(self, dimension: int, fraction: float) -> Any:
        raise AssertionError("a leaf of one row is not cut")


class _Plan:
    """Buckets and ranges planned so far; more leaves may be added to the last bucket."""

    def __init__(self, samples: Mapping[str, LeafSample], rows_wanted: int) -> None:
        self._samples = samples
        self._rows_wanted = max(1, rows_wanted)
        self._leaves: list[list[Partition]] = []
        self._bounds: list[Any] = []
        self._range_buckets: list[int | Mapping[str, int]] = []
        self._open_rows: int | None = None  # of the last bucket; None when it takes no more

    def buckets(self) -> Buckets:
        """Return what was planned."""
        # The first range begins at the least value and needs no bound.
        return Buckets(
            tuple(map(tuple, self._leaves)), tuple(self._bounds[1:]), tuple(self._range_buckets)
        )

    def add(self, group: LeafGroup) -> None:
        """Add one more group of leaves, whose keys are above those of the groups before."""
        row_count = sum(map(self._rows_of, group.leaves))
        if row_count <= _FAR_MORE * self._rows_wanted:
            self._put(group.values.min, self._bucket_for(group.leaves, row_count))
        elif len(group.leaves) == 1:
            self._cut(group.leaves[0], row_count)
        else:
            self._share(group)

    def _put(self, low: Any, bucket: int | Mapping[str, int]) -> None:
        """Store the bucket of the range from `low` on; merge it with an equal preceding range."""
        if self._range_buckets and self._range_buckets[-1] == bucket:
            return
        self._bounds.append(low)
        self._range_buckets.append(bucket)

    def _bucket_for(self, leaves: Sequence[Partition], row_count: int) -> int:
        """Return the bucket for these leaves: the last one if they fit, else a new one."""
        room = self._open_rows is not None and (
            self._open_rows + row_count <= self._rows_wanted
            or self._open_rows < _LEAST_SHARE * self._rows_wanted
        )
        if not room:
            self._leaves.append([])
            self._open_rows = 0
        assert self._open_rows is not None
        self._leaves[-1] += leaves
        self._open_rows += row_count
        return len(self._leaves) - 1

    def _cut(self, leaf: Partition, row_count: int) -> None:
        """Divide one leaf into several buckets, by ranges of the first row key."""
        parts = ceil(row_count / self._rows_wanted)
        keys = leaf.region.ranges[0]
        sample = self._samples[leaf.partition_id]
        least, *points = [sample.quantile(0, part / parts) for part in range(parts)]
        inside = [
            point
            for point in dict.fromkeys(points)
            if max(least, keys.min) < point and (keys.max is None or point < keys.max)
        ]
        for low in (keys.min, *inside):
            self._open_rows = None
            self._put(low, self._bucket_for([leaf], row_count // parts))
        self._open_rows = None

    def _share(self, group: LeafGroup) -> None:
        """Add leaves that share a range of the first row key."""
        self._open_rows = None
        places = {
            leaf.partition_id: self._bucket_for([leaf], self._rows_of(leaf))
            for leaf in group.leaves
        }
        self._open_rows = None
        distinct = {*places.values()}
        self._put(group.values.min, distinct.pop() if len(distinct) == 1 else places)

    def _rows_of(self, leaf: Partition) -> int:
        sample = self._samples.get(leaf.partition_id)
        return 0 if sample is None else sample.row_count
