"""Merges two small sibling leaves by making their parent a leaf again (upstream never merges)."""

from __future__ import annotations

from dataclasses import dataclass

from sleeper.errors import CommitRefused
from sleeper.notebook_html import NotebookHtml
from sleeper.state.plans.splits_and_merges import SiblingLeaves, small_siblings
from sleeper.state.state_store import StateStore
from sleeper.state.transactions.partitions import MergePartitions


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeResult(NotebookHtml):
    """The result of merging two leaves.

    Attributes:
        partition_id: Their parent, which is a leaf if they were merged.
        children: Their ids.
        row_count: The rows of both, from the counts of their references.
        reason: Why they were not merged, as a clause; None if they were.
        transaction: The table's transaction number afterwards.
    """

    partition_id: str
    children: tuple[str, ...]
    row_count: int
    reason: str | None
    transaction: int


def merge_small_leaves(rows_below: int, *, store: StateStore) -> tuple[MergeResult, ...]:
    """Merge pairs of leaves with fewer rows than `rows_below`, up the tree; try each pair once.

    Args:
        rows_below: Two leaves are merged if they have fewer rows together.
        store: The table's state, with references pushed down.

    Returns:
        The result of each pair, in the order in which they were tried.

    Raises:
        CommitContended, CommitUnknown, StorageFailed: try again.
    """
    store.refresh()
    tried: dict[str, MergeResult] = {}
    more = True
    while more:
        pairs = small_siblings(store.state(), rows_below, store.changes_max)
        new = [pair for pair in pairs if pair.parent.partition_id not in tried]
        tried |= {pair.parent.partition_id: merge_leaves(pair, store=store) for pair in new}
        more = bool(new)
    return tuple(tried.values())


def merge_leaves(siblings: SiblingLeaves, *, store: StateStore) -> MergeResult:
    """Merge two leaves, in one commit. The new leaf references their files without changing them.

    Ingests that are running can commit: their references to one of the leaves go to the new leaf.
    If another process changed the leaves or claimed a file in the meantime, nothing is done.

    Raises:
        CommitContended, CommitUnknown, StorageFailed: try again.
    """
    parent = siblings.parent
    reason, number = siblings.obstacle, None
    if reason is None:
        transaction = MergePartitions(parent_id=parent.partition_id, child_ids=parent.child_ids)
        try:
            number = store.commit(transaction).number
        except CommitRefused as refusal:
            reason = f"another process changed it: {refusal}"
    return MergeResult(
        partition_id=parent.partition_id,
        children=parent.child_ids,
        row_count=siblings.row_count,
        reason=reason,
        transaction=store.state().number if number is None else number,
    )
