"""The transactions that change a table's partition tree.

A split removes no partition: it may have references, and writers with a stale tree may still add
some (rule PRT-13). The tree after a change covers the same key space. Merges of leaves are in
`merges`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from sleeper.errors import (
    InitialiseWithFilesPresent,
    PartitionMergeRefused,
    PartitionSplitRefused,
    SplitInvalid,
)
from sleeper.model.files import FileReference
from sleeper.model.partitions import Partition, PartitionTree, check_split
from sleeper.model.row_deletes import RowDelete
from sleeper.state.table_state import TableState, Transaction
from sleeper.state.transactions.files import check_unclaimed, unite_references


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


# ---------------------------------------------------------------- merges
#
# The transaction that merges two leaves into one (upstream never merges leaves).


@dataclass(frozen=True, slots=True, kw_only=True)
class MergePartitions(Transaction):
    """Removes two leaves and makes their parent a leaf, which gets their references.

    It is refused if only one of the leaves references a part of a file: the other leaf's part of it
    was compacted into another file, and would be read twice.

    Attributes:
        parent_id: The parent.
        child_ids: Its children: (lower, upper).

    Raises (from `check`):
        PartitionMergeRefused: they are not two leaves of this parent, or only one references a
            part of a file.
        FileReferenceAssignedToJob: a compaction job has claimed a file of one of them.
    """

    parent_id: str
    child_ids: tuple[str, ...]

    def check(self, state: TableState) -> None:
        """Check that these are leaves without claims and without unmatched parts of files."""
        lower, upper = self._children(state)
        lower_files, upper_files = (
            state.files.references_on(each.partition_id) for each in (lower, upper)
        )
        for reference in (*lower_files, *upper_files):
            check_unclaimed(reference)
        odd = unmatched_partial_reference(lower_files, upper_files)
        if odd is not None:
            raise PartitionMergeRefused(
                f"partitions {lower.partition_id!r} and {upper.partition_id!r} cannot be merged: "
                f"only {odd.partition_id!r} references a part of {odd.filename!r}. "
                "Compact all files of the table, then merge."
            )

    def fold(self, state: TableState, at: datetime) -> TableState:
        """Replace the children by their parent."""
        if state.partition(self.parent_id).child_ids != self.child_ids:
            raise ValueError(f"{self.child_ids} are not the children of {self.parent_id!r}")
        references = [ref for each in self.child_ids for ref in state.files.references_on(each)]
        moved = unite_references(replace(ref, partition_id=self.parent_id) for ref in references)
        files = state.files
        if references:
            removed = [(ref.filename, ref.partition_id) for ref in references]
            files = files.changed(removed=removed, added=moved, at=at)
        return replace(
            state,
            partitions=state.tree.with_merged(self.parent_id),
            files=files,
            deletes=tuple(self._moved(each) for each in state.deletes),
        )

    def _moved(self, delete: RowDelete) -> RowDelete:
        """Return a deletion by the keys of files with those of the children at the parent."""
        if delete.key_files.keys().isdisjoint(self.child_ids):
            return delete
        key_files = {
            name: found for name, found in delete.key_files.items() if name not in self.child_ids
        }
        moved = dict.fromkeys(
            found
            for name in (self.parent_id, *self.child_ids)
            for found in delete.key_files.get(name, ())
        )
        return replace(delete, key_files=key_files | {self.parent_id: tuple(moved)})

    def _children(self, state: TableState) -> tuple[Partition, Partition]:
        tree = state.partitions
        if tree is None or self.parent_id not in tree:
            raise _merge_refused(f"the table has no partition {self.parent_id!r}")
        if len(self.child_ids) != 2 or tree.partition(self.parent_id).child_ids != self.child_ids:
            raise _merge_refused(
                f"partition {self.parent_id!r} does not have children {self.child_ids}"
            )
        lower, upper = (tree.partition(child_id) for child_id in self.child_ids)
        for child in (lower, upper):
            if not child.is_leaf:
                raise _merge_refused(f"partition {child.partition_id!r} was split")
        return lower, upper


def unmatched_partial_reference(
    lower: tuple[FileReference, ...], upper: tuple[FileReference, ...]
) -> FileReference | None:
    """Return a reference to a part of a file that only one of two leaves has."""
    parts = [{ref.filename: ref for ref in side if not ref.whole_file} for side in (lower, upper)]
    odd = sorted(parts[0].keys() ^ parts[1].keys())
    return (parts[0] | parts[1])[odd[0]] if odd else None


def _merge_refused(what: str) -> PartitionMergeRefused:
    return PartitionMergeRefused(f"{what}. Read the current tree, then plan the merge again.")
