"""Splits one leaf that is too large, at the median of its keys (rules SPL-1 to SPL-6)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from sleeper.engine.writing.sketch import Sketches, union
from sleeper.engine.writing.stored_sketch import read_stored_sketch
from sleeper.errors import DataDamaged, PartitionNotFound, PartitionSplitRefused
from sleeper.model.files import FileReference
from sleeper.model.partitions import Partition, split_partition
from sleeper.model.schema import Schema
from sleeper.notebook_html import NotebookHtml
from sleeper.ports.ids import NewId
from sleeper.ports.objects import Objects
from sleeper.state.plans.splits_and_merges import LeafSize, files_to_sketch, leaf_sizes, split_point
from sleeper.state.state_store import StateStore
from sleeper.state.table_state import TableState
from sleeper.state.transactions.partitions import SplitPartition

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


def split_leaf(
    partition_id: str,
    *,
    store: StateStore,
    files: Objects,
    schema: Schema,
    files_max: int,
    new_id: NewId,
) -> SplitResult:
    """Split a leaf into two, in one commit. Its references stay on the parent.

    Ingest, compaction and queries continue at the same time: references on the parent belong to
    both halves.

    Args:
        partition_id: The leaf.
        store: The table's state.
        files: The table's folder, where the sketches are.
        schema: The table's schema.
        files_max: Maximum number of sketches to read: those of the files with the most rows.
        new_id: Makes ids of the halves.

    Raises:
        CommitContended, CommitUnknown, StorageFailed: try again; a leaf is not split twice.
    """
    state = store.refresh()
    try:
        leaf = state.partition(partition_id)
    except PartitionNotFound:
        return _left(partition_id, state.number, "it is no longer in the tree")
    if not leaf.is_leaf:
        return _left(partition_id, state.number, "it was split meanwhile")
    found = _point(state, leaf, files, schema, files_max)
    if isinstance(found, str):
        return _left(partition_id, state.number, found)
    dimension, point = found
    parent, lower, upper = split_partition(leaf, point, dimension=dimension, new_id=new_id)
    try:
        after = store.commit(SplitPartition(parent=parent, children=(lower, upper)))
    except PartitionSplitRefused:
        return _left(partition_id, store.state().number, "another process has split it")
    return SplitResult(
        partition_id=partition_id,
        field=schema.row_keys[dimension].name,
        point=point,
        children=(lower.partition_id, upper.partition_id),
        transaction=after.number,
    )


def sized_leaves(
    state: TableState, threshold: int, *, files: Objects, schema: Schema, files_max: int
) -> tuple[LeafSize, ...]:
    """Return the leaves that have rows, the largest first, with whether each can be split.

    The result agrees with `split_leaf`: the sketches of leaves that are too large are read.

    Args:
        state: The table, with references pushed down.
        threshold: The number of rows from which on a leaf is split.
        files: The table's folder, where the sketches are.
        schema: The table's schema.
        files_max: Maximum number of sketches to read: those of the files with the most rows.
    """
    sizes = []
    for size in leaf_sizes(state, threshold):
        if not size.too_large:
            sizes.append(size)
            continue
        found = _point(state, size.partition, files, schema, files_max)
        sizes.append(replace(size, obstacle=found if isinstance(found, str) else None))
    return tuple(sizes)


def _point(
    state: TableState, leaf: Partition, files: Objects, schema: Schema, files_max: int
) -> tuple[int, Any] | str:
    """Return the dimension and value to split a leaf at, or why it cannot be split."""
    largest = files_to_sketch(state, leaf.partition_id, files_max)
    sketches = [sketch for sketch in _sketches(largest, files, schema) if sketch.row_count]
    if not sketches:
        return "none of its files has a sketch of any rows"
    return split_point(leaf, union(sketches)) or "too many of its rows have the same key"


def _left(partition_id: str, transaction: int, reason: str) -> SplitResult:
    return SplitResult(partition_id=partition_id, reason=reason, transaction=transaction)


def _sketches(
    references: tuple[FileReference, ...], files: Objects, schema: Schema
) -> Iterator[Sketches]:
    """Yield the sketches that can be read."""
    for reference in references:
        try:
            sketches = read_stored_sketch(files, reference, schema)
        except DataDamaged as damage:
            _log.warning("a sketch is ignored by a split: %s", damage)
        else:
            if sketches is not None:
                yield sketches
