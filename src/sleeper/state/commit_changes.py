"""What commits change, and how much, for stores that take only so many changes at once.

`StateStore.changes_max` says what counts as a change, and how many a commit may make.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeVar

from sleeper.model.files import ClaimRecord, FileReference
from sleeper.model.partitions import Partition, PartitionTree
from sleeper.state.file_references import FileReferences
from sleeper.state.table_state import JobChanges, TableState
from sleeper.state.transactions.files import Claim

Item = TypeVar("Item")

_OF_AN_OUTPUT = 3
"""A compaction adds a reference and a file, and ends its job's claim."""
_OF_A_PUSH = 2
"""A push removes a reference, and changes how many the file has."""
_OF_A_MERGE = 5
"""A merge removes two leaves, changes their parent, and notes what became of both."""


def inputs_max(changes_max: int) -> int:
    """Return how many inputs a compaction job may have, so that its commit fits.

    Each input is two changes: the reference that is removed, and its file.
    """
    return (changes_max - _OF_AN_OUTPUT) // 2


def claim_changes(claim: Claim) -> int:
    """Return how many changes it is at most to claim or release files for a job."""
    return len(claim.filenames) + 1


def push_changes(parts: int) -> int:
    """Return how many changes it is to replace a reference by so many others."""
    return parts + _OF_A_PUSH


def parts_max(changes_max: int) -> int:
    """Return by how many others a reference may be replaced in one commit."""
    return changes_max - _OF_A_PUSH


def merge_changes(lower: Sequence[FileReference], upper: Sequence[FileReference]) -> int:
    """Return how many changes it is at most to merge leaves with these references."""
    names = [{ref.filename for ref in side} for side in (lower, upper)]
    both, either = names[0] & names[1], names[0] | names[1]
    return _OF_A_MERGE + len(lower) + len(upper) + len(either) + len(both)


def clear_changes(state: TableState, new: PartitionTree) -> int:
    """Return how many changes it is to remove all files of a table, and replace its partitions."""
    tree = state.partitions
    old = len(tree) + len(tree.merged) if tree else 0
    files = state.files.reference_count + state.files.file_count
    return files + len(state.claims) + old + len(new)


def in_groups(
    items: Iterable[Item], changes_of: Callable[[Item], int], changes_max: int | None
) -> Iterator[tuple[Item, ...]]:
    """Yield items in groups that each fit in one commit; an item that never fits comes alone.

    Args:
        items: The items, in order.
        changes_of: Returns how many changes an item is.
        changes_max: How many changes fit; None for any number, so that there is one group.
    """
    group: list[Item] = []
    changes = 0
    for item in items:
        more = changes_of(item)
        if group and changes_max is not None and changes + more > changes_max:
            yield tuple(group)
            group, changes = [], 0
        group.append(item)
        changes += more
    if group:
        yield tuple(group)


def claim_groups(claims: Iterable[Claim], changes_max: int | None) -> Iterator[tuple[Claim, ...]]:
    """Yield claims in groups that can each be released by one commit; large ones are divided."""
    return in_groups(_divided(claims, changes_max), claim_changes, changes_max)


def _divided(claims: Iterable[Claim], changes_max: int | None) -> Iterator[Claim]:
    for claim in claims:
        if changes_max is None or claim_changes(claim) <= changes_max:
            yield claim
            continue
        step = changes_max - 1
        for start in range(0, len(claim.filenames), step):
            yield replace(claim, filenames=claim.filenames[start : start + step])


# ---------------------------------------------------------------- difference
#
# How one state of a table differs from the one before it: what a store of items must write.


Key = TypeVar("Key", str, tuple[str, str])
Value = TypeVar("Value")

Changes = Mapping[Key, tuple[Value | None, Value | None]]
"""By key, the value before and the value after; None where there is none."""


@dataclass(frozen=True, slots=True)
class TrackedFile:
    """A file that a table tracks.

    Attributes:
        references: How many partitions reference it.
        since: When it lost its last reference; None for a referenced file.
    """

    references: int
    since: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateDifference:
    """What changes between two states, but for their numbers, dates and schemas.

    Attributes:
        references: References, by filename and partition id.
        files: Tracked files.
        partitions: Partitions, by id.
        merged: What merged leaves became, by id.
        jobs: Committed jobs.
        claims: Owners of compaction jobs, by job id.
    """

    references: Changes[tuple[str, str], FileReference]
    files: Changes[str, TrackedFile]
    partitions: Changes[str, Partition]
    merged: Changes[str, str]
    jobs: JobChanges
    claims: Changes[str, ClaimRecord]

    @property
    def changes(self) -> int:
        """How many changes there are. Jobs that are dropped do not count."""
        of_files = len(self.references) + len(self.files)
        of_tree = len(self.partitions) + len(self.merged)
        return of_files + of_tree + len(self.jobs.recorded) + len(self.claims)


def state_difference(before: TableState, after: TableState) -> StateDifference:
    """Compare two states, `after` being made from `before` by transactions.

    The cost is proportional to what transactions copied between them, not to the table, unless one
    of them folded the table's files.
    """
    references, files = _file_changes(before.files, after.files)
    old, new = before.partitions, after.partitions
    return StateDifference(
        references=references,
        files=files,
        partitions=_changes(old.partitions if old else {}, new.partitions if new else {}),
        merged=_changes(old.merged if old else {}, new.merged if new else {}),
        jobs=after.jobs.changes_since(before.jobs),
        claims=_changes(before.claims, after.claims),
    )


def differing_attributes(one: TableState, other: TableState) -> set[str]:
    """Return what differs between any two states, but for their numbers, dates and last moves."""
    found = state_difference(one, other)
    merges, others = (
        list(each.partitions.merged.items()) if each.partitions else [] for each in (one, other)
    )
    differing = {
        "references": bool(found.references),
        "files": bool(found.files),
        "partitions": bool(found.partitions) or merges != others,
        "jobs": dict(one.jobs.records()) != dict(other.jobs.records()),
        "claims": bool(found.claims),
        "schemas": dict(one.schemas) != dict(other.schemas),
        "swept_before": one.swept_before != other.swept_before,
    }
    return {name for name, differs in differing.items() if differs}


def _file_changes(
    before: FileReferences, after: FileReferences
) -> tuple[Changes[tuple[str, str], FileReference], Changes[str, TrackedFile]]:
    if before is after:
        return {}, {}
    pairs, waiting = after.touched_since(before)
    references = {}
    for filename, partition_id in sorted(pairs):
        old = before.reference(filename, partition_id)
        new = after.reference(filename, partition_id)
        if old != new:
            references[filename, partition_id] = (old, new)
    files = {}
    for filename in sorted({filename for filename, _ in references} | waiting):
        was, now = _tracked(before, filename), _tracked(after, filename)
        if was != now:
            files[filename] = (was, now)
    return references, files


def _tracked(files: FileReferences, filename: str) -> TrackedFile | None:
    since = files.unreferenced_since(filename)
    if since is not None:
        return TrackedFile(0, since)
    count = files.references_count(filename)
    return TrackedFile(count, None) if count else None


def _changes(before: Mapping[str, Value], after: Mapping[str, Value]) -> Changes[str, Value]:
    if before is after:
        return {}
    found: dict[str, tuple[Value | None, Value | None]] = {}
    for key in (*before, *(key for key in after if key not in before)):
        was, now = before.get(key), after.get(key)
        if was is not now and was != now:
            found[key] = (was, now)
    return found
