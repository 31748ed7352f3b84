"""The transactions that change a table's partition tree.

A split removes no partition: it may have references, and writers with a stale tree may still add
some (rule PRT-13). The tree after a change covers the same key space. Merges of leaves are in
`merges`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime

from sleeper.errors import InitialiseWithFilesPresent, PartitionSplitRefused, SplitInvalid
from sleeper.language.value_classes import dataclass
from sleeper.model.partitions import Partition, PartitionTree, check_split
from sleeper.state.table_state import TableState, Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class InitialisePartitions(Transaction):
    """Sets the partition tree of a table without files, replacing any other (rule STS-1).

    Attributes:
        partitions: All of the new tree, in any order; none clears the partitions (rule STS-2).
        tree: The same as a tree; None if there are none.

    Raises:
        SplitInvalid: the partitions are not a tree (rule PRT-10).

    Raises (from `check`):
        InitialiseWithFilesPresent: files are tracked, referenced or not.
    """

    partitions: tuple[Partition, ...]
    tree: PartitionTree | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        tree = PartitionTree.of(self.partitions) if self.partitions else None
        object.__setattr__(self, "tree", tree)

    def check(self, state: TableState) -> None:
        """Check that the table tracks no file."""
        if not state.has_no_files:
            raise InitialiseWithFilesPresent(
                f"the table's partitions cannot be replaced while it tracks "
                f"{state.files.file_count} files. Clear its files first."
            )

    def fold(self, state: TableState, at: datetime) -> TableState:
        """Set the new tree."""
        return replace(state, partitions=self.tree)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitPartition(Transaction):
    """Makes a leaf a parent of two new leaves (rule STS-3). Its references stay on it.

    Attributes:
        parent: The leaf as a parent, with child ids and dimension.
        children: (lower, upper).

    Raises (from `check`):
        PartitionSplitRefused: the leaf was already split, or the split does not fit.
    """

    parent: Partition
    children: tuple[Partition, Partition]

    def check(self, state: TableState) -> None:
        """Check that a leaf is split into two that divide its region."""
        tree = _initialised(state)
        name = self.parent.partition_id
        _check_becomes_parent(tree, self.parent)
        for child in self.children:
            if child.partition_id in tree or child.partition_id in tree.merged:
                raise _refused(f"Child partition should not be present: {child.partition_id}")
            if child.parent_id != name:
                raise _refused(f"Parent ID does not match on child: {child.partition_id}")
            if not child.is_leaf:
                raise _refused(f"Child should be a leaf partition: {child.partition_id}")
        _check_divides(self.parent, self.children)

    def fold(self, state: TableState, at: datetime) -> TableState:
        """Add the split leaf and its children to the tree."""
        return replace(state, partitions=_with(state.tree, [self.parent], self.children))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtendPartitionTree(Transaction):
    """Splits leaves into subtrees, as before a bulk import (rule STS-4).

    Attributes:
        updated: The leaves, as parents.
        new: Every partition below them, in any order.

    Raises (from `check`):
        PartitionSplitRefused: a leaf was already split, or the result would not be a tree.
    """

    updated: tuple[Partition, ...]
    new: tuple[Partition, ...]

    def check(self, state: TableState) -> None:
        """Check that leaves become complete subtrees."""
        if not self.updated and not self.new:
            return
        tree = _initialised(state)
        for parent in self.updated:
            _check_becomes_parent(tree, parent)
        added = {partition.partition_id: partition for partition in self.new}
        for partition_id in added:
            if partition_id in tree or partition_id in tree.merged:
                raise _refused(f"Partition to be added is in the tree already: {partition_id}")
        updated = {parent.partition_id: parent for parent in self.updated}
        if len(updated) < len(self.updated) or len(added) < len(self.new):
            raise _refused("a partition is listed twice in one extension of the tree")
        _check_subtrees(updated, added)

    def fold(self, state: TableState, at: datetime) -> TableState:
        """Add all updated and new partitions to the tree."""
        if not self.updated and not self.new:
            return state
        return replace(state, partitions=_with(state.tree, self.updated, self.new))


def _initialised(state: TableState) -> PartitionTree:
    if state.partitions is None:
        raise PartitionSplitRefused(
            "Parent partition not found: the table has no partitions. Initialise them first."
        )
    return state.partitions


def _check_becomes_parent(tree: PartitionTree, parent: Partition) -> None:
    name = parent.partition_id
    if name not in tree:
        raise _refused(f"Parent partition not found: {name}")
    before = tree.partition(name)
    if not before.is_leaf:
        raise _refused(
            f"Parent should be a leaf partition, but {name} was split into "
            f"{' and '.join(before.child_ids)}"
        )
    if parent.is_leaf:
        raise _refused(f"Parent should not be a leaf partition after split: {name}")
    if (before.region, before.parent_id) != (parent.region, parent.parent_id):
        raise _refused(
            f"Failed to validate partition split: {name} would get another region or parent"
        )


def _check_subtrees(updated: Mapping[str, Partition], added: Mapping[str, Partition]) -> None:
    """Check that every added partition is below an updated one, by valid splits."""
    reached = 0
    waiting = list(updated.values())
    while waiting:
        parent = waiting.pop()
        missing = [child_id for child_id in parent.child_ids if child_id not in added]
        if missing:
            raise _refused(f"{parent.partition_id} has children that are not added: {missing}")
        children = tuple(added[child_id] for child_id in parent.child_ids)
        _check_divides(parent, children)
        reached += len(children)
        waiting += [child for child in children if not child.is_leaf]
    if reached != len(added):
        raise _refused(f"{len(added) - reached} of {len(added)} added partitions have no parent")


def _check_divides(parent: Partition, children: tuple[Partition, ...]) -> None:
    try:
        check_split(parent, children)
    except SplitInvalid as error:
        raise _refused(f"Failed to validate partition split: {error}") from None


def _with(
    tree: PartitionTree, parents: Sequence[Partition], new: Sequence[Partition]
) -> PartitionTree:
    """Return the tree with leaves as parents and new partitions; copies a dictionary once.

    Raises:
        LookupError, ValueError: the result would not be a tree. Regions are not checked.
    """
    by_id = {partition.partition_id: partition for partition in (*parents, *new)}
    for parent in parents:
        if not tree.partition(parent.partition_id).is_leaf:
            raise ValueError(f"partition {parent.partition_id!r} was split before")
    for partition in new:
        above = by_id.get(partition.parent_id or "")
        if partition.partition_id in tree or above is None:
            raise ValueError(f"partition {partition.partition_id!r} does not fit its parent")
        if partition.partition_id not in above.child_ids:
            raise ValueError(f"partition {partition.partition_id!r} is not a child of its parent")
    if any(child not in by_id for each in by_id.values() for child in each.child_ids):
        raise ValueError("a partition has a child that does not exist")
    return replace(tree, partitions={**tree.partitions, **by_id})


def _refused(what: str) -> PartitionSplitRefused:
    return PartitionSplitRefused(f"{what}. Read the current tree, then plan the split again.")
