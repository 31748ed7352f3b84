"""Splits leaves that are too large, and merges small ones. No file is moved by either.

    1. references of split partitions are moved down to the leaves (`push_down`)
    2. a leaf with too many rows is cut in two at the median of its keys, which the sketches of its
       files tell (rules SPL-1 to SPL-6); its references stay on the parent, and belong to both.
       Sketches are read here, or in tasks of Spark
    3. two leaves of one parent with few rows together are merged: their parent becomes a leaf
       again, up the tree (upstream never merges)

Each split and each merge is one commit.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from sleeper.engine.sketches.leaf_keys import LeafFiles, leaf_keys
from sleeper.errors import CommitRefused, PartitionNotFound, PartitionSplitRefused
from sleeper.html.values import NotebookHtml
from sleeper.model.partitions import Partition, split_partition
from sleeper.model.schema import Schema
from sleeper.ports.objects import Objects
from sleeper.state.plans.splits_and_merges import (
    LeafSize,
    SiblingLeaves,
    files_to_sketch,
    merging_threshold,
    plan_merges,
    plan_splits,
    split_point,
)
from sleeper.state.state_store import StateStore
from sleeper.state.table_state import TableState
from sleeper.state.transactions.partitions import MergePartitions, SplitPartition
from sleeper.tables.on_spark import batches_of, files_for_spark, run_batches
from sleeper.tables.open_table import OpenTable
from sleeper.tables.push_down import push_down_references, pushed_down

if TYPE_CHECKING:  # an extra, and slow to import
    from pyspark.sql import SparkSession

_SKETCHES_OF_A_TASK = 200

SplitPoint = tuple[int, Any]
"""The number of a row key field, and the least value of the upper half."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitResult(NotebookHtml):
    """The result of splitting one leaf.

    Attributes:
        partition_id: The leaf.
        field: The row key field that it was split on; None if it was not split.
        point: The least value of the upper half.
        children: Ids of the lower and the upper half.
        reason: Why it was not split, as a clause; None if it was.
        transaction: The table's transaction number afterwards.
    """

    partition_id: str
    field: str | None = None
    point: Any = None
    children: tuple[str, ...] = ()
    reason: str | None = None
    transaction: int


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


def leaf_sizes(table: OpenTable) -> tuple[LeafSize, ...]:
    """Return the leaves that have rows, and whether each will be split (`Table.leaf_sizes`).

    The result agrees with `split_partitions`: the sketches of leaves that are too large are read.
    """
    state = pushed_down(table, table.store.refresh())
    sizes = []
    for size in plan_splits(state, table.properties.splitting.threshold_rows):
        if not size.too_large:
            sizes.append(size)
            continue
        found = _point(table, state, size.partition)
        sizes.append(replace(size, obstacle=found if isinstance(found, str) else None))
    return tuple(sizes)


def split_partitions(table: OpenTable, *, spark: SparkSession | None) -> tuple[SplitResult, ...]:
    """Split leaves that are too large (`Table.split_partitions`)."""
    files = None if spark is None else files_for_spark(table)
    push_down_references(table)
    state = table.store.state()
    sizes = plan_splits(state, table.properties.splitting.threshold_rows)
    large = [size.partition for size in sizes if size.too_large]
    if spark is None or files is None:
        return tuple(_split_leaf(table, leaf.partition_id) for leaf in large)
    results = {}
    for leaf, point in _points_by_spark(table, state, large, spark, files):
        results[leaf.partition_id] = _split_leaf(table, leaf.partition_id, point)
    return tuple(results[leaf.partition_id] for leaf in large)


def small_siblings(table: OpenTable, *, rows_below: int | None) -> tuple[SiblingLeaves, ...]:
    """Return the pairs that `merge_partitions` would merge first (`Table.small_siblings`)."""
    threshold = merging_threshold(table.properties.splitting, rows_below)
    return plan_merges(table.store.refresh(), threshold, table.store.changes_max)


def merge_partitions(table: OpenTable, *, rows_below: int | None) -> tuple[MergeResult, ...]:
    """Merge pairs of small leaves with the same parent (`Table.merge_partitions`)."""
    threshold = merging_threshold(table.properties.splitting, rows_below)
    if threshold:
        push_down_references(table)
    return _merge_small_leaves(threshold, store=table.store)


def _split_leaf(
    table: OpenTable, partition_id: str, point: SplitPoint | str | None = None
) -> SplitResult:
    """Split a leaf into two, in one commit. Its references stay on the parent.

    Args:
        table: The table.
        partition_id: The leaf.
        point: Where to split it, or why it cannot be split; None if sketches are to be read here.

    Ingest, compaction and queries continue at the same time: references on the parent belong to
    both halves.

    Raises:
        CommitContended, CommitUnknown, StorageFailed: try again; a leaf is not split twice.
    """
    store, schema, new_id = table.store, table.schema, table.context.new_id
    state = store.refresh()
    try:
        leaf = state.partition(partition_id)
    except PartitionNotFound:
        return _left(partition_id, state.number, "it is no longer in the tree")
    if not leaf.is_leaf:
        return _left(partition_id, state.number, "it was split meanwhile")
    found = _point(table, state, leaf) if point is None else point
    if isinstance(found, str):
        return _left(partition_id, state.number, found)
    dimension, value = found
    parent, lower, upper = split_partition(leaf, value, dimension=dimension, new_id=new_id)
    try:
        after = store.commit(SplitPartition(parent=parent, children=(lower, upper)))
    except PartitionSplitRefused:
        return _left(partition_id, store.state().number, "another process has split it")
    return SplitResult(
        partition_id=partition_id,
        field=schema.row_keys[dimension].name,
        point=value,
        children=(lower.partition_id, upper.partition_id),
        transaction=after.number,
    )


def _leaf_files(table: OpenTable, state: TableState, leaf: Partition) -> LeafFiles:
    files_max = table.context.properties.splitting.sketch_files_max
    return LeafFiles(leaf=leaf, references=files_to_sketch(state, leaf.partition_id, files_max))


def _points_by_spark(
    table: OpenTable,
    state: TableState,
    leaves: Sequence[Partition],
    spark: SparkSession,
    files: Objects,
) -> Iterator[tuple[Partition, SplitPoint | str]]:
    """Yield where each leaf is to be split, or why it cannot be, in any order."""
    waiting = (_leaf_files(table, state, leaf) for leaf in leaves)
    batches = batches_of(waiting, lambda each: len(each.references), _SKETCHES_OF_A_TASK)
    run = partial(_points_of, files=files, schema=table.schema)
    title = f"sleeper: split {table.name}, leaves"
    for batch, points in run_batches(spark, batches, run, title=title):
        for each, point in zip(batch, points, strict=True):
            yield each.leaf, point


def _points_of(
    leaves: Sequence[LeafFiles], *, files: Objects, schema: Schema
) -> list[SplitPoint | str]:
    return [_point_of(each, files, schema) for each in leaves]


def _point(table: OpenTable, state: TableState, leaf: Partition) -> SplitPoint | str:
    return _point_of(_leaf_files(table, state, leaf), table.files, table.schema)


def _point_of(of_leaf: LeafFiles, files: Objects, schema: Schema) -> SplitPoint | str:
    """Return the dimension and value to split a leaf at, or why it cannot be split."""
    known = leaf_keys(of_leaf, files, schema)
    if known is None:
        return "none of its files has a sketch of any rows"
    return split_point(of_leaf.leaf, known) or "too many of its rows have the same key"


def _left(partition_id: str, transaction: int, reason: str) -> SplitResult:
    return SplitResult(partition_id=partition_id, reason=reason, transaction=transaction)


def _merge_small_leaves(rows_below: int, *, store: StateStore) -> tuple[MergeResult, ...]:
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
        pairs = plan_merges(store.state(), rows_below, store.changes_max)
        new = [pair for pair in pairs if pair.parent.partition_id not in tried]
        tried |= {pair.parent.partition_id: _merge_leaves(pair, store=store) for pair in new}
        more = bool(new)
    return tuple(tried.values())


def _merge_leaves(siblings: SiblingLeaves, *, store: StateStore) -> MergeResult:
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
