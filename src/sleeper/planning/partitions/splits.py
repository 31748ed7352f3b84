"""Plans splits of leaves that have grown: which, and where (rules SPL-1 to SPL-4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from sleeper.model.partitions import Partition
from sleeper.model.ranges import Range
from sleeper.state.table_state import TableState


class Spread(Protocol):
    """The distribution of the row keys of some files: the union of their sketches."""

    def least_median_most(self, dimension: int, inside: Range) -> tuple[Any, Any, Any] | None:
        """Return three values of a row key field among the rows that lie in a range.

        The median of n values in order is that at index n // 2 (rule SPL-4). None without rows.
        """
        ...

    def next_above(self, dimension: int, inside: Range, value: Any) -> Any | None:
        """Return the least value of a row key field above one, in a range; None without one."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafSize:
    """A leaf, and whether it has grown too large.

    Attributes:
        partition: The leaf.
        row_count: Its rows as its references say.
        estimated: True where a reference's count is an estimate.
        threshold: From how many rows on a leaf is split.
        obstacle: Why a leaf that is too large cannot be split, as a clause; None if nothing
            stands in the way.
    """

    partition: Partition
    row_count: int
    estimated: bool
    threshold: int
    obstacle: str | None = None

    @property
    def too_large(self) -> bool:
        """True from the threshold on (rule SPL-1)."""
        return self.row_count >= self.threshold

    @property
    def will_be_split(self) -> bool:
        """True when the next run of splits divides it."""
        return self.too_large and self.obstacle is None


def leaf_sizes(state: TableState, threshold: int) -> tuple[LeafSize, ...]:
    """Return the leaves that have rows, the largest first, with whether each is to be split.

    Estimates count too, unlike upstream, where a leaf of nothing but parts of files never splits.
    Rows that are referenced by partitions above the leaves are not counted: they are pushed down
    before.
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


def files_to_sketch(state: TableState, partition_id: str, files_max: int) -> tuple[str, ...]:
    """Return the files whose sketches tell where to split: those with the most rows (SPL-2)."""
    references = sorted(state.files.references_on(partition_id), key=lambda ref: -ref.row_count)
    return tuple(reference.filename for reference in references[:files_max])


def split_point(leaf: Partition, spread: Spread) -> tuple[int, Any] | None:
    """Find a dimension on which a leaf can be split, and where (rule SPL-3).

    The median of the first dimension where it has keys on both sides; else the next key above the
    median; else the median itself, if there are keys below it. Sketches are of whole files: only
    what lies in the leaf counts, field by field. None where all keys of the leaf are the same.
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
