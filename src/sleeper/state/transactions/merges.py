"""The transaction that merges two leaves into one (upstream never merges leaves)."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from sleeper.errors import PartitionMergeRefused
from sleeper.language.value_classes import dataclass
from sleeper.model.files import FileReference
from sleeper.model.partitions import Partition
from sleeper.state.table_state import TableState, Transaction
from sleeper.state.transactions.claims import check_unclaimed
from sleeper.state.transactions.placement import unite_references


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
        return replace(state, partitions=state.tree.with_merged(self.parent_id), files=files)

    def _children(self, state: TableState) -> tuple[Partition, Partition]:
        tree = state.partitions
        if tree is None or self.parent_id not in tree:
            raise _refused(f"the table has no partition {self.parent_id!r}")
        if len(self.child_ids) != 2 or tree.partition(self.parent_id).child_ids != self.child_ids:
            raise _refused(f"partition {self.parent_id!r} does not have children {self.child_ids}")
        lower, upper = (tree.partition(child_id) for child_id in self.child_ids)
        for child in (lower, upper):
            if not child.is_leaf:
                raise _refused(f"partition {child.partition_id!r} was split")
        return lower, upper


def unmatched_partial_reference(
    lower: tuple[FileReference, ...], upper: tuple[FileReference, ...]
) -> FileReference | None:
    """Return a reference to a part of a file that only one of two leaves has."""
    parts = [{ref.filename: ref for ref in side if not ref.whole_file} for side in (lower, upper)]
    odd = sorted(parts[0].keys() ^ parts[1].keys())
    return (parts[0] | parts[1])[odd[0]] if odd else None


def _refused(what: str) -> PartitionMergeRefused:
    return PartitionMergeRefused(f"{what}. Read the current tree, then plan the merge again.")
