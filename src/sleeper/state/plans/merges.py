"""Plans merges of sibling leaves with few rows (upstream never merges leaves)."""

from __future__ import annotations

from sleeper.errors import BadRequest
from sleeper.language.value_classes import dataclass
from sleeper.model.known_properties.maintenance import SplittingProperties
from sleeper.model.partitions import Partition
from sleeper.state.stores.commit_sizes import merge_changes
from sleeper.state.table_state import TableState
from sleeper.state.transactions.merges import unmatched_partial_reference


@dataclass(frozen=True, slots=True, kw_only=True)
class SiblingLeaves:
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


def small_siblings(
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
