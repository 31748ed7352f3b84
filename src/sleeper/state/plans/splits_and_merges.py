"""Plans which leaves are split, and where (rules SPL-1 to SPL-4), and which small ones merge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from sleeper.errors import BadRequest
from sleeper.html.values import NotebookHtml
from sleeper.model.files import FileReference
from sleeper.model.known_properties.maintenance import SplittingProperties
from sleeper.model.partitions import Partition
from sleeper.model.ranges import Range
from sleeper.state.commit_changes import merge_changes
from sleeper.state.table_state import TableState
from sleeper.state.transactions.partitions import unmatched_partial_reference


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
class LeafSize(NotebookHtml):
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


def plan_splits(state: TableState, threshold: int) -> tuple[LeafSize, ...]:
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


# ---------------------------------------------------------------- merges
#
# Plans merges of sibling leaves with few rows (upstream never merges leaves).


@dataclass(frozen=True, slots=True, kw_only=True)
class SiblingLeaves(NotebookHtml):
    """Two leaves of one parent that are small enough to be merged.

    Attributes:
        parent: Their parent.
        row_count: The rows of both, from the counts of their references.
        estimated: True if the count of a reference is an estimate.
        obstacle: Why they cannot be merged, as a clause; None if they can.
    """

    parent: Partition
    row_count: int
    estimated: bool
    obstacle: str | None


def merging_threshold(known: SplittingProperties, rows_below: int | None) -> int:
    """Return the number of rows below which two leaves are merged; 0 merges none.

    Args:
        known: The table's properties.
        rows_below: The requested threshold, instead of the table's own.

    Raises:
        BadRequest: it is more than the number of rows at which a leaf is split.
    """
    threshold = known.merging_threshold_rows if rows_below is None else rows_below
    if threshold > known.threshold_rows:
        raise BadRequest(
            f"leaves of fewer than {threshold:,} rows cannot be merged: a leaf of "
            f"{known.threshold_rows:,} rows is split "
            "(sleeper.table.partition.splitting.threshold). Choose a smaller number."
        )
    return threshold


def plan_merges(
    state: TableState, rows_below: int, changes_max: int | None = None
) -> tuple[SiblingLeaves, ...]:
    """Return the pairs of leaves that have fewer rows together than `rows_below`, in key order.

    References of partitions above the leaves are not counted: they must be pushed down before.

    Args:
        state: The table.
        rows_below: The rows of both together are fewer.
        changes_max: How many changes the state store takes in one commit; None for any number.
    """
    totals = state.files.totals()
    found = []
    for parent in _parents_of_leaves(state):
        of_leaves = [totals[child_id] for child_id in parent.child_ids if child_id in totals]
        row_count = sum(each.rows for each in of_leaves)
        if row_count < rows_below:
            found.append(
                SiblingLeaves(
                    parent=parent,
                    row_count=row_count,
                    estimated=any(each.estimated for each in of_leaves),
                    obstacle=_obstacle(state, parent, changes_max),
                )
            )
    return tuple(found)


def _parents_of_leaves(state: TableState) -> list[Partition]:
    """Return the partitions whose children are both leaves, each once, in key order."""
    parent_ids = [leaf.parent_id for leaf in state.leaf_partitions() if leaf.parent_id is not None]
    of_one = dict.fromkeys(parent_ids)
    parents = (state.partition(parent_id) for parent_id in of_one)
    return [
        parent
        for parent in parents
        if all(state.partition(child_id).is_leaf for child_id in parent.child_ids)
    ]


def _obstacle(state: TableState, parent: Partition, changes_max: int | None) -> str | None:
    lower, upper = (state.files.references_on(child_id) for child_id in parent.child_ids)
    claimed = next((ref for ref in (*lower, *upper) if ref.job_id is not None), None)
    if claimed is not None:
        return f"compaction job {claimed.job_id} is running there"
    odd = unmatched_partial_reference(lower, upper)
    if odd is not None:
        return f"only one of them still references {odd.filename}: compact all files first"
    if changes_max is not None and merge_changes(lower, upper) > changes_max:
        return (
            f"they reference {len(lower) + len(upper)} files together, more than the table's state "
            "store moves at once: compact them first"
        )
    return None
