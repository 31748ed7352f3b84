"""Plans splits of large leaves: which, and where (rules SPL-1 to SPL-4)."""

from __future__ import annotations

from typing import Any, Protocol

from sleeper.language.value_classes import dataclass
from sleeper.model.files import FileReference
from sleeper.model.partitions import Partition
from sleeper.model.ranges import Range
from sleeper.state.table_state import TableState


class Spread(Protocol):
    """The distribution of the row keys of some files: the union of their sketches."""

    def least_median_most(self, dimension: int, inside: Range) -> tuple[Any, Any, Any] | None:
        """Return the least, median and greatest value of a row key field among rows in a range.

        The median of n values in order is the one at index n // 2 (SPL-4). None without rows.
        """
        ...

    def next_above(self, dimension: int, inside: Range, value: Any) -> Any | None:
        """Return the least value of a row key field in a range above `value`; None without one."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafSize:
    """A leaf, its rows, and whether it is too large.

    Attributes:
        partition: The leaf.
        row_count: Its rows, from the counts of its references.
        estimated: True if the count of a reference is an estimate.
        threshold: The number of rows from which on a leaf is split.
        obstacle: Why a leaf that is too large cannot be split, as a clause; None if it can.
    """

    partition: Partition
    row_count: int
    estimated: bool
    threshold: int
    obstacle: str | None = None

    @property
    def too_large(self) -> bool:
        """True if it has at least as many rows as the threshold (rule SPL-1)."""
        return self.row_count >= self.threshold

    @property
    def will_be_split(self) -> bool:
        """True if the next splitting run splits it."""
        return self.too_large and self.obstacle is None


def leaf_sizes(state: TableState, threshold: int) -> tuple[LeafSize, ...]:
    """Return the leaves that have rows, the largest first, with whether each is too large.

    Estimates count too, unlike upstream, where a leaf that has only parts of files is never split.
    References of partitions above the leaves are not counted: they must be pushed down before.
    """
    totals = state.files.totals()
    sizes = [
        LeafSize(
            partition=leaf,
            row_count=totals[leaf.partition_id].rows,
            estimated=totals[leaf.partition_id].estimated,
            threshold=threshold,
        )
        for leaf in state.leaf_partitions()
        if leaf.partition_id in totals
    ]
    return tuple(sorted(sizes, key=lambda size: -size.row_count))


def files_to_sketch(
    state: TableState, partition_id: str, files_max: int
) -> tuple[FileReference, ...]:
    """Return the files whose sketches are used to split: those with the most rows (SPL-2)."""
    references = sorted(state.files.references_on(partition_id), key=lambda ref: -ref.row_count)
    return tuple(references[:files_max])


def split_point(leaf: Partition, spread: Spread) -> tuple[int, Any] | None:
    """Find a dimension on which a leaf can be split, and where (rule SPL-3).

    This is the median of the first dimension with keys on both sides of it. If there is none, it
    is, in the first dimension with different keys, the next key above the median, or the median
    if that is the greatest. Sketches cover whole files, so for each field only values in the
    leaf's range count. None if all keys are equal.
    """
    skewed: list[tuple[int, Any]] = []
    for dimension, inside in enumerate(leaf.region.ranges):
        found = spread.least_median_most(dimension, inside)
        if found is None:
            continue
        least, median, most = found
        if least < median < most:
            return dimension, median
        above = spread.next_above(dimension, inside, median)
        if above is not None:
            skewed.append((dimension, above))
        elif least < median:
            skewed.append((dimension, median))
    return skewed[0] if skewed else None
