"""Plans splits of leaves before a bulk import, so that there are enough (rule BLK-10).

The leaf with the most rows is split first, at the median of its sample. Its halves share the
sample, each with a window of it, so one sample of the input is enough for a tree of any size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from typing import Any, Protocol

from sleeper.errors import InsufficientData
from sleeper.model.partitions import Partition, PartitionTree, split_partition

LEAF_ROWS = 1_000_000
LEAF_BYTES = 128 << 20
_SMALL_LEAVES = 4096
_LARGE_LEAF = 8


def leaves_wanted(row_count: int, size_bytes: int) -> int:
    """Return how many leaves an input needs: one for each million rows or 128 MiB.

    Beyond 4,096 leaves each gets more, up to eight times as much: a table of 100 TB has 93,132
    leaves of 1 GiB and not 745,059, which would take long to open.

    >>> leaves_wanted(336_776, 40 << 20), leaves_wanted(10_000_000, 0)
    (1, 10)
    >>> leaves_wanted(0, 10**12), leaves_wanted(0, 10**14)
    (4096, 93133)

    Args:
        row_count: Rows of the input.
        size_bytes: Their size before compression; 0 if it is not known.
    """
    small = max(1, -(-row_count // LEAF_ROWS), -(-size_bytes // LEAF_BYTES))
    return min(small, max(_SMALL_LEAVES, -(-small // _LARGE_LEAF)))


class LeafSample(Protocol):
    """A sample of the rows that an import adds to one leaf: at least one row."""

    @property
    def row_count(self) -> int:
        """Rows that the import adds to the leaf; an estimate if not every row was sampled."""
        ...

    def quantile(self, dimension: int, fraction: float) -> Any:
        """Return the key value below which `fraction` of the leaf's rows are.

        For n values in order it is the one at index min(n - 1, floor(fraction * n)) (SPL-4).
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """Changes of a tree, which one `ExtendPartitionTree` commits.

    Attributes:
        updated: Leaves of the old tree that become parents, as those parents.
        new: All new partitions below them.
    """

    updated: tuple[Partition, ...]
    new: tuple[Partition, ...]


def extend_tree(
    tree: PartitionTree,
    samples: Mapping[str, LeafSample],
    *,
    min_leaves: int,
    min_rows: int,
    min_percent: int,
    new_id: Callable[[], str],
    required: bool = True,
) -> Extension:
    """Plan splits until the tree has `min_leaves` leaves; no change if it has that many already.

    Args:
        tree: The current tree.
        samples: Samples of the leaves that get rows, by partition id. Other leaves are never split
            (upstream fails on them).
        min_leaves: The wanted number of leaves.
        min_rows: A leaf with fewer rows of the input is not split.
        min_percent: Leaves with less than this percentage of the mean row count are not split.
        new_id: Makes ids of partitions.
        required: True if fewer leaves are an error; False to make as many as the input allows.

    Raises:
        InsufficientData: the input has too few rows, or too few different keys.
    """
    leaves = list(tree.leaves())
    queue = _first_candidates(leaves, samples, min_percent)
    growth = _Growth(len(leaves), new_id)
    while growth.leaf_count < min_leaves:
        if not queue and not required:
            break
        if not queue:
            raise InsufficientData(min_leaves, growth.leaf_count)
        candidate = heappop(queue)
        if candidate.row_count < min_rows:
            continue
        for half in growth.split(candidate):
            heappush(queue, half)
    return growth.extension(tree)


@dataclass(frozen=True, slots=True)
class _Window:
    """The part of a sample that is in a leaf, in one dimension, as fractions of its rows."""

    low: float = 0.0
    middle: float = 0.5
    high: float = 1.0

    def halves(self) -> tuple[_Window, _Window]:
        """Return the windows below and above the middle."""
        return (
            _Window(self.low, (self.low + self.middle) / 2, self.middle),
            _Window(self.middle, (self.middle + self.high) / 2, self.high),
        )


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A leaf that may be split.

    Attributes:
        leaf: The leaf, either of the old tree or new.
        sample: The sample of the leaf of the old tree that contains it.
        windows: The part of the sample that is in this leaf, by dimension.
        row_count: Estimated rows in it: halved with every split.
        place: Its position in the order of creation.
    """

    leaf: Partition
    sample: LeafSample
    windows: tuple[_Window, ...]
    row_count: int
    place: int

    def __lt__(self, other: _Candidate) -> bool:
        """Return whether it is split before `other`: it has more rows, or was added earlier."""
        return (-self.row_count, self.place) < (-other.row_count, other.place)

    def split_point(self) -> tuple[int, Any] | None:
        """Find the first dimension that can be split, and where (rule SPL-3)."""
        for dimension, window in enumerate(self.windows):
            low, middle, high = (
                self.sample.quantile(dimension, fraction)
                for fraction in (window.low, window.middle, window.high)
            )
            inside = self.leaf.region.ranges[dimension]
            if low < middle < high and middle in inside and middle != inside.min:
                return dimension, middle
        return None


def _first_candidates(
    leaves: list[Partition], samples: Mapping[str, LeafSample], min_percent: int
) -> list[_Candidate]:
    """Return the leaves with enough rows to be split, as a heap."""
    counts = [
        samples[leaf.partition_id].row_count if leaf.partition_id in samples else 0
        for leaf in leaves
    ]
    expected = sum(counts) // len(leaves)
    floor_rows = max(1, -(-expected * min_percent // 100))
    candidates = [
        _Candidate(
            leaf, samples[leaf.partition_id], (_Window(),) * len(leaf.region.ranges), count, place
        )
        for place, (leaf, count) in enumerate(zip(leaves, counts, strict=True))
        if count >= floor_rows
    ]
    heapify(candidates)
    return candidates


class _Growth:
    """The changes of a tree that is extended by splits.

    Attributes:
        leaf_count: Its current number of leaves.
    """

    def __init__(self, leaf_count: int, new_id: Callable[[], str]) -> None:
        self.leaf_count = leaf_count
        self._new_id = new_id
        self._added = leaf_count
        self._changed: dict[str, Partition] = {}

    def split(self, candidate: _Candidate) -> list[_Candidate]:
        """Split a leaf and return its halves; none if its keys do not differ enough."""
        found = candidate.split_point()
        if found is None:
            return []
        dimension, point = found
        parent, *children = split_partition(
            candidate.leaf, point, dimension=dimension, new_id=self._new_id
        )
        self._changed |= {each.partition_id: each for each in (parent, *children)}
        self.leaf_count += 1
        halves = []
        for child, window in zip(children, candidate.windows[dimension].halves(), strict=True):
            windows = list(candidate.windows)
            windows[dimension] = window
            self._added += 1
            halves.append(
                replace(
                    candidate,
                    leaf=child,
                    windows=tuple(windows),
                    row_count=candidate.row_count // 2,
                    place=self._added,
                )
            )
        return halves

    def extension(self, tree: PartitionTree) -> Extension:
        """Return the changes of the old tree."""
        return Extension(
            updated=tuple(p for name, p in self._changed.items() if name in tree),
            new=tuple(p for name, p in self._changed.items() if name not in tree),
        )
