"""A compaction job that has claimed its inputs, with what it needs from the table's state.

Whoever runs the job then needs no state: what it reads and writes is settled. Two attempts of one
job write the same file, byte for byte, so it does no harm when a late one replaces an earlier.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from sleeper.errors import FileAlreadyExists, FileReferenceNotAssignedToJob, FileReferenceNotFound
from sleeper.model.formats.compaction_job import CompactionJob
from sleeper.model.partitions import Partition
from sleeper.state.table_state import TableState

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedJob:
    """A compaction job whose inputs are claimed, with everything that decides what it writes.

    Attributes:
        job: The job.
        partition: Its partition; no longer a leaf where it was split since (rule CMP-16).
        whole_files: Those of its inputs of which every row belongs to the partition.
        claimed_ms: When the last input was claimed, in milliseconds since 1970: the present for
            filters by age. It is the same for every attempt, and so then are the rows.
        sequence: The number of the transaction that the job was planned after; deletions of rows
            up to it are applied to what it writes.
        schema_id: The schema that it writes by.
    """

    job: CompactionJob
    partition: Partition
    whole_files: frozenset[str]
    claimed_ms: int
    sequence: int
    schema_id: int


def inputs_are_free(state: TableState, job: CompactionJob) -> bool:
    """Tell whether no job has claimed an input, and all of them are still there."""
    references = [state.files.reference(name, job.partition_id) for name in job.inputs]
    return all(each is not None and each.job_id is None for each in references)


def inputs_are_held(state: TableState, job: CompactionJob) -> bool:
    """Tell whether a job holds a claim on any of its inputs."""
    references = (state.files.reference(name, job.partition_id) for name in job.inputs)
    return any(each is not None and each.job_id == job.job_id for each in references)


def claimed_job(state: TableState, job: CompactionJob) -> ClaimedJob:
    """Return a job with what the state says of its inputs.

    Raises:
        PartitionNotFound: there is no such partition.
        FileAlreadyExists: the table has the job's output: it was committed before.
        FileReferenceNotFound: the partition does not reference an input (any longer).
        FileReferenceNotAssignedToJob: an input is not claimed by this job.
    """
    partition = state.partition(job.partition_id)
    if state.files.is_tracked(job.output):
        raise FileAlreadyExists(
            f"compaction job {job.job_id!r} was committed before: {state.whereabouts(job.output)}. "
            "Do not run it again."
        )
    whole, claimed = [], _EPOCH
    for filename in job.inputs:
        reference = state.files.reference(filename, job.partition_id)
        if reference is None:
            raise FileReferenceNotFound(state.missing_reference(filename, job.partition_id))
        if reference.job_id != job.job_id:
            raise FileReferenceNotAssignedToJob(
                f"{filename!r} on partition {job.partition_id!r} is claimed by "
                f"{f'job {reference.job_id!r}' if reference.job_id else 'nobody'}, not by "
                f"compaction job {job.job_id!r}. Claim its inputs first, or plan again."
            )
        if reference.whole_file:
            whole.append(filename)
        claimed = max(claimed, reference.updated or _EPOCH)
    return ClaimedJob(
        job=job,
        partition=partition,
        whole_files=frozenset(whole),
        claimed_ms=int(claimed.timestamp() * 1000),
        sequence=state.number,
        schema_id=state.schema_id,
    )
