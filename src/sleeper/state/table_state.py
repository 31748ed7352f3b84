"""The state of a table after one transaction, with its jobs, and the base class of transactions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Final, Self

from sleeper.errors import FileReferenceAssignedToJob, FileReferenceNotFound, PartitionNotFound
from sleeper.model.authors import Author
from sleeper.model.files import ClaimRecord, FileReference
from sleeper.model.partitions import Partition, PartitionTree
from sleeper.model.row_deletes import KeyFile, RowDelete
from sleeper.model.schema import Schema
from sleeper.model.schema_changes import shown_like, with_ids
from sleeper.model.tables import StateMove
from sleeper.state.file_references import FileReferences

FORMATS: Final = (1, 2)
"""Formats of the log and the state of a table that this version reads and writes."""

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
        deletes: Deletions of rows that some file still has, in the order of their transactions.
        format: The format in which entries and snapshots are written; one of `FORMATS`.
        digest: The digest of the last entry, which the next one names; None in format 1, for a
            store without a log, and where the chain begins.

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
    deletes: tuple[RowDelete, ...] = ()
    format: int = 1
    digest: str | None = None

    @classmethod
    def empty(cls) -> TableState:
        """Return the state before any transaction."""
        return cls(0, None, FileReferences.empty(), CommittedJobs())

    @property
    def schema_id(self) -> int:
        """The id of the newest schema, or of the first one if there is none yet."""
        return max(self.schemas, default=1)

    def schema_then(self, newest: Schema, known: TableState | None) -> Schema:
        """Return the schema that the table had, with its columns in the order of then.

        Args:
            newest: The table's schema of today.
            known: A newer state, whose log says the order of columns of before the first change.
        """
        later = {} if known is None else known.schemas
        then = later.get(self.schema_id, self.schemas.get(self.schema_id))
        if then is None or then.number >= newest.number:
            return newest
        return with_ids(shown_like(then, newest))

    def next_entry_time(self, storage_time: datetime) -> datetime:
        """Return the time of the next entry: the storage's time, but after the last entry's."""
        return storage_time if self.at is None else max(storage_time, self.at + _ENTRY_GAP)

    def with_files(self, files: FileReferences, changed: Iterable[str], at: datetime) -> TableState:
        """Return the state with other files, and without deletions that none has yet to obey.

        A file that only such a deletion needed is unreferenced from then on.

        Args:
            files: The files of the next state.
            changed: The partitions where they differ from those of this one. Deletions elsewhere
                stay as they are.
            at: When the change was made.
        """
        if not self.deletes:
            return replace(self, files=files)
        left = replace(self, files=files, deletes=self._deletes_left(files, [*changed]))
        over = self.key_files().keys() - left.key_files().keys()
        free = [name for name in over if files.unreferenced_since(name) is not None]
        return replace(left, files=files.changed(unreferenced=free, at=at)) if free else left

    def _deletes_left(self, files: FileReferences, changed: Sequence[str]) -> tuple[RowDelete, ...]:
        places = [self.partition(partition_id) for partition_id in dict.fromkeys(changed)]
        above = {name for place in places for name in self.tree.ids_upwards(place.partition_id)}
        inner = {place.partition_id for place in places if not place.is_leaf}

        def is_left(delete: RowDelete, partition_id: str) -> bool:
            is_concerned = partition_id in above or (
                inner and not inner.isdisjoint(self.tree.ids_upwards(partition_id))
            )
            return not is_concerned or self._has_older(delete, partition_id, files)

        left = []
        for each in self.deletes:
            if each.key_files:
                kept = {name: of for name, of in each.key_files.items() if is_left(each, name)}
                if kept:
                    is_same = len(kept) == len(each.key_files)
                    left.append(each if is_same else replace(each, key_files=kept))
            elif not any(
                region.overlaps(place.region) for region in each.regions for place in places
            ) or self.is_yet_to_obey(each, files):
                left.append(each)
        return tuple(left)

    def is_yet_to_obey(self, delete: RowDelete, files: FileReferences) -> bool:
        """Return whether a deletion applies to any of some files that may have its rows."""
        leaves = self.tree.leaves_overlapping(delete.regions) if delete.regions else ()
        ids = [*delete.key_files, *(leaf.partition_id for leaf, _ in leaves)]
        return any(self._has_older(delete, each, files) for each in ids)

    def _has_older(self, delete: RowDelete, partition_id: str, files: FileReferences) -> bool:
        """Return whether a deletion applies to any of some files of a partition's keys."""
        ids = [*self.tree.ids_upwards(partition_id), *self.tree.ids_below(partition_id)]
        return any(
            delete.applies_to(reference.sequence)
            for each in ids
            for reference in files.references_on(each)
        )

    def key_files(self) -> dict[str, KeyFile]:
        """Return the files whose keys some file has yet to leave out, by name."""
        return {
            each.filename: each
            for delete in self.deletes
            for of_partition in delete.key_files.values()
            for each in of_partition
        }

    def needs_more_than(self, newer: TableState) -> bool:
        """Return whether a file that this state reads is deleted, as far as a newer one knows."""
        return self.files.needs_more_than(newer.files) or not all(
            newer.files.is_tracked(name) for name in self.key_files()
        )

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

    def references_of(self, leaf_id: str) -> Iterator[FileReference]:
        """Yield what may have rows of a leaf: its own references, then those of its ancestors."""
        for partition_id in self.tree.ids_upwards(leaf_id):
            yield from self.files.references_on(partition_id)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction(ABC):
    """One atomic change of a table's state.

    A writer calls `apply`, which checks and then folds. Replay calls only `fold`, because a
    committed entry is part of the table's history, even if a later version would refuse it.

    Attributes:
        author: Who commits it, and why; None until it is committed, and in entries of earlier
            versions. Transactions that differ in nothing else are equal.
    """

    author: Author | None = field(default=None, compare=False)

    def signed(self, author: Author) -> Self:
        """Return the same change with its author, if it has none and the author says something."""
        if self.author is not None or author == Author():
            return self
        return self.by(author)

    def by(self, author: Author) -> Self:
        """Return the same change with an author. It is not validated again, which may take long."""
        made = copy(self)
        object.__setattr__(made, "author", author)
        return made

    @abstractmethod
    def check(self, state: TableState) -> None:
        """Check that the change may be committed after `state`.

        Raises:
            CommitRefused: the state forbids the change. No other error is possible.
        """

    def recorded(self, state: TableState) -> Self:
        """Return the change as its entry has it, with what only the state before it tells.

        `state` has been checked. What is added is for readers of the log: `fold` ignores it.
        """
        return self

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


# ---------------------------------------------------------------- committed jobs
#
# The ingest jobs that a table has committed, so that a job that runs again adds nothing.
#
# A record is kept for the time that its job requested, and until many entries have followed it, so
# that a clock that is wrong for a while does not delete records. Only times in transactions decide
# what has expired, not the clock of the reader, so every replay of a log gives the same result.


_ENTRIES_MIN = 10_000  # a record is kept while fewer entries have followed it
_RECENT_MIN = 64  # a smaller layer is never folded: copying it is cheap


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedJob:
    """An ingest or bulk import job, as its transaction records it.

    Attributes:
        job_id: The id that the caller chose.
        keep_until: Until when the table keeps the id, at least (aware, UTC).
        rows_read: Rows in its input.
        rows_written: Rows in its data files; fewer if the table filters or aggregates.
    """

    job_id: str
    keep_until: datetime
    rows_read: int
    rows_written: int

    def record(self, *, number: int, at: datetime, files: int) -> JobRecord:
        """Return the table's record of it: committed as `number`, with `files` files."""
        return JobRecord(
            number=number,
            at=at,
            keep_until=self.keep_until,
            rows_read=self.rows_read,
            rows_written=self.rows_written,
            files=files,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """A table's record of a committed job.

    Attributes:
        number: The transaction that made the job's rows visible.
        at: When it was committed (aware, UTC).
        keep_until: From when on the record may be dropped, if enough entries have followed it.
        rows_read: Rows in the job's input.
        rows_written: Rows in the data files that it added.
        files: Number of data files that it added.
    """

    number: int
    at: datetime
    keep_until: datetime
    rows_read: int
    rows_written: int
    files: int


@dataclass(frozen=True, slots=True)
class JobChanges:
    """How the committed jobs of a table differ from older ones.

    Attributes:
        recorded: Records that are new, or another than before.
        dropped: Ids of jobs without a record now.
        cleared: True if some were dropped that had not expired: all records from before were.
    """

    recorded: Mapping[str, JobRecord]
    dropped: frozenset[str]
    cleared: bool


@dataclass(frozen=True, slots=True, eq=False)
class CommittedJobs:
    """The committed jobs of a table, by id. Immutable: `with_job` makes a new value.

    Two layers keep `with_job` cheap: a large one that versions share, and a small one that is
    copied. The small one is folded into the large one when its length exceeds the square root
    of the large one's.

    Attributes:
        last: The job that was committed last. Records that had expired when it was committed
            are dropped, if enough entries followed them. None if there was no job.
    """

    last: JobRecord | None = None
    _folded: Mapping[str, JobRecord] = field(default_factory=dict)
    _recent: Mapping[str, JobRecord] = field(default_factory=dict)

    @classmethod
    def of(cls, records: Iterable[tuple[str, JobRecord]]) -> CommittedJobs:
        """Build from (job id, record) pairs, as `records` yields them."""
        by_id = dict(records)
        return cls(max(by_id.values(), key=lambda each: each.number, default=None), by_id)

    def find(self, job_id: str) -> JobRecord | None:
        """Return the record of a job; None if it was never committed, or its record was dropped."""
        record = self._recent.get(job_id) or self._folded.get(job_id)
        return record if record is not None and self._is_kept(record) else None

    def with_job(self, job_id: str, record: JobRecord) -> CommittedJobs:
        """Return the jobs with one more, the last, and without those that expired before it."""
        return self.with_jobs({job_id: record})

    def with_jobs(self, records: Mapping[str, JobRecord]) -> CommittedJobs:
        """Return the jobs with those of one entry, in their order."""
        *_, last = records.values()
        recent = {**self._recent, **records}
        added = CommittedJobs(last, self._folded, recent)
        if len(recent) < _RECENT_MIN or len(recent) ** 2 < len(self._folded):
            return added
        return CommittedJobs(last, dict(added.records()))

    def changes_since(self, before: CommittedJobs) -> JobChanges:
        """Return what was recorded and dropped since an older value.

        The cost is proportional to the smaller layer, or to both if it was folded since.
        """
        old, new = before._layers(), self._layers()
        if self._folded is before._folded:
            old, new = before._recent, self._recent
        recorded = {name: each for name, each in new.items() if old.get(name) is not each}
        dropped = {name: each for name, each in old.items() if name not in new}
        cleared = any(before._is_kept(each) and self._is_kept(each) for each in dropped.values())
        return JobChanges(recorded, frozenset(dropped), cleared)

    def _layers(self) -> Mapping[str, JobRecord]:
        return {**self._folded, **self._recent} if self._folded else self._recent

    def records(self) -> Iterator[tuple[str, JobRecord]]:
        """Yield (job id, record) of every recorded job."""
        for job_id, record in {**self._folded, **self._recent}.items():
            if self._is_kept(record):
                yield job_id, record

    def __len__(self) -> int:
        return sum(1 for _ in self.records())

    def _is_kept(self, record: JobRecord) -> bool:
        last = self.last
        if last is None or last.number - record.number < _ENTRIES_MIN:
            return True
        return record.keep_until >= last.at
