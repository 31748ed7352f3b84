"""Plans splits of leaves before a bulk import, so that there are enough (rule BLK-10).

The leaf with the most rows is split first, at the median of its sample; its halves share the
sample, each with a window on it. So a tree of any size is planned from one look at the input.
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


def leaves_wanted(row_count: int, size_bytes: int, ceiling: int) -> int:
    """Return one leaf for each million rows or 128 MiB of the input, from 1 to `ceiling`.

    >>> leaves_wanted(336_776, 40 << 20, 256), leaves_wanted(10_000_000, 0, 256)
    (1, 10)

    Args:
        row_count: Rows of the input.
        size_bytes: Their size before compression; 0 where it is not known.
        ceiling: As many at most.
    """
    return max(1, min(ceiling, max(-(-row_count // LEAF_ROWS), -(-size_bytes // LEAF_BYTES))))


class LeafSample(Protocol):
    """What is known of the rows that an import brings to one leaf: at least one row."""

    @property
    def row_count(self) -> int:
        """Rows that come to the leaf, estimated where not every row was looked at."""
        ...

    def quantile(self, dimension: int, fraction: float) -> Any:
        """Return the key value that `fraction` of the leaf's rows lie below.

        Of n values in order it is that at index min(n - 1, floor(fraction * n)) (rule SPL-4).
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """What to change in a tree, as one `ExtendPartitionTree` commits it.

    Attributes:
        updated: Leaves of the tree before, as the parents they become.
        new: Every partition below them.
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
    """Plan splits until the tree has `min_leaves` leaves; nothing if it has them already.

    Args:
        tree: As it is now.
        samples: Of the leaves that get rows, by partition id. Others are never split (ours:
            upstream fails on them).
        min_leaves: How many leaves are wanted.
        min_rows: A leaf with fewer rows of the input is not split.
        min_percent: Leaves with less than this share of an even spread are not split either.
        new_id: Makes ids of partitions.
        required: Whether fewer leaves are an error; else there are as many as the input allows.

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
    """The part of a sample, in one dimension, that lies in a leaf; a share of rows each."""

    low: float = 0.0
    middle: float = 0.5
    high: float = 1.0

    def halves(self) -> tuple[_Window, _Window]:
        """The windows below and above the middle."""
        return (
            _Window(self.low, (self.low + self.middle) / 2, self.middle),
            _Window(self.middle, (self.middle + self.high) / 2, self.high),
        )


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A leaf that may be split.

    Attributes:
        leaf: The leaf, of the tree before or new.
        sample: That of the leaf of the tree before which it lies in.
        windows: What of the sample is in this leaf, by dimension.
        row_count: Rows in it: halved with every split.
        place: When it was added.
    """

    leaf: Partition
    sample: LeafSample
    windows: tuple[_Window, ...]
    row_count: int
    place: int

    def __lt__(self, other: _Candidate) -> bool:
        """True when it is to be split before `other`: it has more rows, or came earlier."""
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
    """The leaves that have their share of rows, as a heap."""
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
    """A tree that grows by splits, as the changes to the one before.

    Attributes:
        leaf_count: Leaves it has by now.
    """

    def __init__(self, leaf_count: int, new_id: Callable[[], str]) -> None:
        self.leaf_count = leaf_count
        self._new_id = new_id
        self._added = leaf_count
        self._changed: dict[str, Partition] = {}

    def split(self, candidate: _Candidate) -> list[_Candidate]:
        """Split a leaf and return its halves; none where its keys do not differ enough."""
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
        """What changes in the tree before."""
        return Extension(
            updated=tuple(p for name, p in self._changed.items() if name in tree),
            new=tuple(p for name, p in self._changed.items() if name not in tree),
        )
