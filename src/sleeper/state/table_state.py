"""The state of a table after one transaction, and the base class of transactions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice

from sleeper.errors import FileReferenceAssignedToJob, FileReferenceNotFound, PartitionNotFound
from sleeper.model.files import ClaimRecord, FileReference
from sleeper.model.partitions import Partition, PartitionTree
from sleeper.model.schema import Schema
from sleeper.model.tables import StateMove
from sleeper.state.committed_jobs import CommittedJobs
from sleeper.state.file_references import FileReferences

_ENTRY_GAP = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class TableState:
    """A table's partitions, files and committed jobs. Immutable: transactions make new states.

    Attributes:
        number: The number of the last transaction; 0 before the first.
        partitions: The partition tree; None until it is initialised.
        files: References to files, and unreferenced files that are not yet deleted.
        jobs: The committed ingest jobs.
        claims: Owners of compaction jobs that have claimed files, by job id; without jobs whose
            claims were made by versions without owners.
        at: When the last entry was written, by the storage's clock (aware, UTC); None before the
            first, and for a snapshot that an older version wrote.
        swept_before: A sweep may have deleted files written before this time that are not in the
            table; None if no sweep has run.
        schemas: The table's schemas by id; empty until a version that stores them has committed.
        moved: The last move of the state to another state store; None before the first. A store
            that is not its target takes no more commits.

    Source: rule STS-10.
    """

    number: int
    partitions: PartitionTree | None
    files: FileReferences
    jobs: CommittedJobs
    claims: Mapping[str, ClaimRecord] = field(default_factory=dict)
    at: datetime | None = None
    swept_before: datetime | None = None
    schemas: Mapping[int, Schema] = field(default_factory=dict)
    moved: StateMove | None = None

    @classmethod
    def empty(cls) -> TableState:
        """Return the state before any transaction."""
        return cls(0, None, FileReferences.empty(), CommittedJobs())

    @property
    def schema_id(self) -> int:
        """The id of the newest schema, or of the first one if there is none yet."""
        return max(self.schemas, default=1)

    def next_entry_time(self, storage_time: datetime) -> datetime:
        """Return the time of the next entry: the storage's time, but after the last entry's."""
        return storage_time if self.at is None else max(storage_time, self.at + _ENTRY_GAP)

    @property
    def tree(self) -> PartitionTree:
        """The partition tree.

        Raises:
            PartitionNotFound: the table's partitions were never initialised, or cleared.
        """
        if self.partitions is None:
            raise PartitionNotFound(
                f"the table has no partitions at transaction {self.number}. "
                "Commit InitialisePartitions first, as creating a table does."
            )
        return self.partitions

    def partition(self, partition_id: str) -> Partition:
        """Return one partition.

        Raises:
            PartitionNotFound: the tree has no partition with this id.
        """
        return self.tree.partition(partition_id)

    def leaf_partitions(self) -> tuple[Partition, ...]:
        """Return the leaves in key order; none before the partitions are initialised."""
        return tuple(self.partitions.leaves()) if self.partitions else ()

    def references(self) -> list[FileReference]:
        """Return every reference, by filename, then partition. It makes all objects."""
        references = (
            reference
            for partition_id in self.files.partition_ids()
            for reference in self.files.references_on(partition_id)
        )
        return sorted(references, key=lambda ref: (ref.filename, ref.partition_id))

    @property
    def has_no_files(self) -> bool:
        """True if no file is tracked, referenced or not."""
        return not self.files.reference_count and next(self.files.unreferenced(), None) is None

    def unreferenced_before(self, before: datetime) -> Iterator[str]:
        """Yield the files that lost their last reference strictly before a time."""
        return (filename for filename, _ in self.files.unreferenced(before))

    def unreferenced_up_to(self, limit: int) -> tuple[list[tuple[str, datetime]], bool]:
        """Return at most `limit` unreferenced files, and whether there are more.

        Each has the time at which it lost its last reference (rules FRF-6, FRF-7).
        """
        found = list(islice(self.files.unreferenced(), limit + 1))
        return found[:limit], len(found) > limit

    def is_assigned(self, job_id: str, partition_id: str, filenames: Iterable[str]) -> bool:
        """Return whether every one of these references is claimed by this job (rule STS-11).

        Raises:
            FileReferenceNotFound: the partition does not reference one of them, or no longer.
            FileReferenceAssignedToJob: another job has claimed one of them.
        """
        assigned = True
        for filename in filenames:
            reference = self.files.reference(filename, partition_id)
            if reference is None:
                raise FileReferenceNotFound(self.missing_reference(filename, partition_id))
            if reference.job_id not in (None, job_id):
                raise FileReferenceAssignedToJob(
                    f"{filename!r} on partition {partition_id!r} is claimed by job "
                    f"{reference.job_id!r}, not by {job_id!r}. Leave it to that job."
                )
            assigned = assigned and reference.job_id == job_id
        return assigned

    def missing_reference(self, filename: str, partition_id: str) -> str:
        """Return text for errors: a partition lacks a reference, and which partitions have it."""
        return (
            f"partition {partition_id!r} does not reference {filename!r}; "
            f"{self.whereabouts(filename)}. The job was planned from an older state: "
            "drop it and plan again."
        )

    def whereabouts(self, filename: str) -> str:
        """Return text for errors: which partitions reference a file."""
        if not self.files.is_tracked(filename):
            return "the table does not track it"
        partition_ids = [repr(ref.partition_id) for ref in self.files.references_to(filename)]
        if partition_ids:
            return f"it is referenced by partition {', '.join(partition_ids)}"
        return "no partition references it, and it waits for garbage collection"


class Transaction(ABC):
    """One atomic change of a table's state.

    A writer calls `apply`, which checks and then folds. Replay calls only `fold`, because a
    committed entry is part of the table's history, even if a later version would refuse it.
    """

    __slots__ = ()

    @abstractmethod
    def check(self, state: TableState) -> None:
        """Check that the change may be committed after `state`.

        Raises:
            CommitRefused: the state forbids the change. No other error is possible.
        """

    @abstractmethod
    def fold(self, state: TableState, at: datetime) -> TableState:
        """Return the state after this change, without checking it.

        `state.number` is already the number of the transaction's entry and is not changed: an
        entry may contain many transactions. A transaction that changes nothing returns `state`
        itself, and is never written to the log.

        Args:
            state: The state before the change.
            at: When its entry was written (aware, UTC).

        Raises:
            LookupError, ValueError: something to change does not exist. This never happens
                after `check`.
        """

    def apply(self, state: TableState, at: datetime) -> TableState:
        """Check the change, then return the state after it.

        Raises:
            CommitRefused: the state forbids the change. No other error is possible.
        """
        self.check(state)
        return self.fold(state, at)
