"""Finds compaction jobs that hold claims, since when, and those whose lease has ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from sleeper.errors import FileAlreadyExists, FileReferenceNotAssignedToJob, FileReferenceNotFound
from sleeper.html.values import NotebookHtml
from sleeper.model.files import ClaimOwner
from sleeper.model.formats.compaction_job import CompactionJob
from sleeper.model.partitions import Partition
from sleeper.model.ranges import Region
from sleeper.model.row_deletes import regions_without
from sleeper.state.plans.queries import hidden_in, key_files_of
from sleeper.state.table_state import TableState
from sleeper.state.transactions.files import Claim


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldClaim(NotebookHtml):
    """Files of one partition that a compaction job has claimed.

    Attributes:
        job_id: The job.
        partition_id: The partition.
        filenames: The files.
        owner: The process that runs the job; None if an older version made the claim.
        since: When it claimed them.
        age_s: Seconds since then.
        renewed: When it last renewed the claim.
        lease_ends: When its lease ends: from then on any compaction run may release the files.
    """

    job_id: str
    partition_id: str
    filenames: tuple[str, ...]
    owner: ClaimOwner | None
    since: datetime
    age_s: int
    renewed: datetime
    lease_ends: datetime

    @property
    def claim(self) -> Claim:
        """The claim, as `ReleaseClaims` takes it."""
        return Claim(job_id=self.job_id, partition_id=self.partition_id, filenames=self.filenames)


def held_claims(state: TableState, lease: timedelta, now: datetime) -> tuple[HeldClaim, ...]:
    """Return all claims, ordered by job id: one for each job and partition.

    Args:
        state: The table.
        lease: How long a claim is valid without renewal.
        now: The current time.
    """
    names: dict[tuple[str, str], list[str]] = {}
    claimed: dict[tuple[str, str], datetime] = {}
    for partition_id, totals in state.files.totals().items():
        if not totals.references_on_jobs:
            continue
        for reference in state.files.references_on(partition_id):
            if reference.job_id is not None and reference.updated is not None:
                where = (reference.job_id, partition_id)
                names.setdefault(where, []).append(reference.filename)
                claimed[where] = max(reference.updated, claimed.get(where, reference.updated))
    found = []
    for (job_id, partition_id), since in sorted(claimed.items()):
        record = state.claims.get(job_id)
        renewed = max(since, record.renewed) if record else since
        found.append(
            HeldClaim(
                job_id=job_id,
                partition_id=partition_id,
                filenames=tuple(names[job_id, partition_id]),
                owner=record.owner if record else None,
                since=since,
                age_s=max(0, round((now - since).total_seconds())),
                renewed=renewed,
                lease_ends=renewed + lease,
            )
        )
    return tuple(found)


def expired_claims(state: TableState, lease: timedelta, now: datetime) -> tuple[HeldClaim, ...]:
    """Return the claims whose lease has ended."""
    return tuple(each for each in held_claims(state, lease, now) if each.lease_ends < now)


# ---------------------------------------------------------------- claimed jobs
#
# A compaction job whose inputs are claimed, with what it needs from the table's state.
#
# The worker that runs the job needs no state, because everything that it reads and writes is
# fixed. Attempts that may run at once, as on Spark, write files of their own (`output_of`).

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedJob:
    """A compaction job whose inputs are claimed, with everything that determines its output.

    Attributes:
        job: The job.
        partition: Its partition; no longer a leaf if it was split since (rule CMP-16).
        whole_files: The inputs of which every row belongs to the partition.
        claimed_ms: When the last input was claimed, in milliseconds since 1970. Filters by age
            use it as the current time, so every attempt writes the same rows.
        hidden: Regions of deleted rows of the inputs, by file; only of files that have some.
        key_files: By input, the files whose keys are deleted from it; only of those that have some.
        sequence: The number of the transaction that the job was planned at; deletions of rows up to
            it are applied to its output.
        row_count: Rows of its inputs in the partition, about.
        size_bytes: The length of its inputs, as far as it is known.
    """

    job: CompactionJob
    partition: Partition
    whole_files: frozenset[str]
    claimed_ms: int
    sequence: int
    row_count: int = 0
    size_bytes: int = 0
    hidden: Mapping[str, tuple[Region, ...]] = field(default_factory=dict)
    key_files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def is_read_whole(self, filename: str) -> bool:
        """Return whether every row of an input is read."""
        deleted_from = self.hidden.keys() | self.key_files.keys()
        return filename in self.whole_files and filename not in deleted_from

    def regions_of(self, filename: str) -> tuple[Region, ...]:
        """Return the regions to read of an input that is not read whole; none if it has no rows."""
        return regions_without([self.partition.region], self.hidden.get(filename, ()))


def inputs_are_free(state: TableState, job: CompactionJob) -> bool:
    """Return whether all inputs are still referenced and none is claimed by a job."""
    references = state.files.references_named(job.inputs, job.partition_id)
    return all(each is not None and each.job_id is None for each in references)


def inputs_are_held(state: TableState, job: CompactionJob) -> bool:
    """Return whether a job holds a claim on any of its inputs."""
    references = state.files.references_named(job.inputs, job.partition_id)
    return any(each is not None and each.job_id == job.job_id for each in references)


def inputs_remain(state: TableState, job: CompactionJob) -> bool:
    """Return whether the partition still references an input of a job: it was not replaced."""
    references = state.files.references_named(job.inputs, job.partition_id)
    return any(each is not None for each in references)


def claimed_job(state: TableState, job: CompactionJob) -> ClaimedJob:
    """Return a job with what the state records about its inputs.

    Raises:
        PartitionNotFound: there is no such partition.
        FileAlreadyExists: the table has the job's output: the job is already committed.
        FileReferenceNotFound: the partition does not reference an input, or no longer.
        FileReferenceNotAssignedToJob: an input is not claimed by this job.
    """
    partition = state.partition(job.partition_id)
    if state.files.is_tracked(job.output):
        raise FileAlreadyExists(
            f"compaction job {job.job_id!r} was committed before: {state.whereabouts(job.output)}. "
            "Do not run it again."
        )
    whole, claimed = [], _EPOCH
    row_count = size_bytes = 0
    hidden, key_files = {}, {}
    references = state.files.references_named(job.inputs, job.partition_id)
    for filename, reference in zip(job.inputs, references, strict=True):
        if reference is None:
            raise FileReferenceNotFound(state.missing_reference(filename, job.partition_id))
        if reference.job_id != job.job_id:
            raise FileReferenceNotAssignedToJob(
                f"{filename!r} on partition {job.partition_id!r} is claimed by "
                f"{f'job {reference.job_id!r}' if reference.job_id else 'no job'}, not by "
                f"compaction job {job.job_id!r}. Claim its inputs first, or plan again."
            )
        if reference.whole_file:
            whole.append(filename)
        if gone := hidden_in(state, reference.sequence, [partition.region]):
            hidden[filename] = gone
        if keys := key_files_of(state, reference.sequence, partition.partition_id):
            key_files[filename] = tuple(each.filename for each in keys)
        claimed = max(claimed, reference.updated or _EPOCH)
        row_count += reference.row_count
        size_bytes += reference.size_bytes or 0
    return ClaimedJob(
        job=job,
        partition=partition,
        whole_files=frozenset(whole),
        hidden=hidden,
        key_files=key_files,
        claimed_ms=int(claimed.timestamp() * 1000),
        sequence=state.number,
        row_count=row_count,
        size_bytes=size_bytes,
    )
