"""Checks and corrects the partitions of references to files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from sleeper.errors import FileReferenceAlreadyExists, PartitionNotInTree
from sleeper.model.files import FileReference
from sleeper.model.partitions import PartitionTree


def placed_references(
    references: Sequence[FileReference], tree: PartitionTree | None
) -> Sequence[FileReference]:
    """Return references to new files, with those to merged partitions moved to their parents."""
    if not (tree and tree.merged) or not any(ref.partition_id in tree.merged for ref in references):
        return references
    placed = [
        replace(ref, partition_id=tree.surviving_partition(ref.partition_id)) for ref in references
    ]
    moved = {
        ref.filename
        for before, ref in zip(references, placed, strict=True)
        if before.partition_id != ref.partition_id
    }
    kept = [ref for ref in placed if ref.filename not in moved]
    for of_one_file in references_by_file(ref for ref in placed if ref.filename in moved).values():
        united = unite_references(of_one_file)
        kept += [replace(united[0], whole_file=True)] if len(united) == 1 else united
    return kept


def unite_references(references: Iterable[FileReference]) -> list[FileReference]:
    """Merge references so that there is one for each file and partition, with the sum of rows."""
    united: dict[tuple[str, str], FileReference] = {}
    for reference in references:
        where = (reference.filename, reference.partition_id)
        other = united.setdefault(where, reference)
        if other is not reference:
            united[where] = replace(
                other,
                row_count=other.row_count + reference.row_count,
                row_count_estimated=other.row_count_estimated or reference.row_count_estimated,
            )
    return [*united.values()]


def references_by_file(references: Iterable[FileReference]) -> dict[str, list[FileReference]]:
    """Return the references to each file."""
    by_filename: dict[str, list[FileReference]] = {}
    for reference in references:
        by_filename.setdefault(reference.filename, []).append(reference)
    return by_filename


def check_placement(
    references: Sequence[FileReference], tree: PartitionTree | None, below: str | None = None
) -> None:
    """Check that one file's references are in the tree, under `below`, and share no rows."""
    places = Counter(reference.partition_id for reference in references)
    for partition_id, count in places.items():
        filename = references[0].filename
        if count > 1:
            raise FileReferenceAlreadyExists(
                f"{filename!r} has {count} references on partition {partition_id!r}. "
                "Its rows would be read several times. Give it one reference."
            )
        if tree is None or partition_id not in tree:
            raise PartitionNotInTree(
                f"{filename!r} cannot be referenced on partition {partition_id!r}: the table's "
                "tree has no such partition. Read the table's state, then place the file again."
            )
        if below is None and len(places) == 1:
            continue
        above = [ancestor.partition_id for ancestor in tree.ancestors(partition_id)]
        if below is not None and below not in above:
            raise PartitionNotInTree(
                f"{filename!r} cannot be pushed from partition {below!r} to {partition_id!r}, "
                "which is not below it. Plan it again from the newest state."
            )
        shared = [ancestor_id for ancestor_id in above if ancestor_id in places]
        if shared:
            raise FileReferenceAlreadyExists(
                f"{filename!r} would be referenced on partition {partition_id!r} and on its "
                f"ancestor {shared[0]!r}: rows would be read twice. Keep one of the two."
            )
