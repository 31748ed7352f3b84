"""How one state of a table differs from the one before it: what a store of items must write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from sleeper.model.files import ClaimRecord, FileReference
from sleeper.model.partitions import Partition
from sleeper.state.file_references import FileReferences
from sleeper.state.table_state import JobChanges, TableState

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
        "deletes": one.deletes != other.deletes,
        "format": one.format != other.format,
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
