"""A compaction job whose inputs are claimed, with what it needs from the table's state.

The worker that runs the job needs no state, because everything that it reads and writes is
fixed. Two attempts of one job write the same bytes, so a late attempt may overwrite an earlier one.
"""

from __future__ import annotations

from datetime import UTC, datetime

from sleeper.errors import FileAlreadyExists, FileReferenceNotAssignedToJob, FileReferenceNotFound
from sleeper.language.value_classes import dataclass
from sleeper.model.formats.compaction_job import CompactionJob
from sleeper.model.partitions import Partition
from sleeper.state.table_state import TableState

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
        sequence: The number of the transaction that the job was planned at; deletions of rows up to
            it are applied to its output.
        schema_id: The schema that it writes with.
    """

    job: CompactionJob
    partition: Partition
    whole_files: frozenset[str]
    claimed_ms: int
    sequence: int
    schema_id: int


def inputs_are_free(state: TableState, job: CompactionJob) -> bool:
    """Return whether all inputs are still referenced and none is claimed by a job."""
    references = [state.files.reference(name, job.partition_id) for name in job.inputs]
    return all(each is not None and each.job_id is None for each in references)


def inputs_are_held(state: TableState, job: CompactionJob) -> bool:
    """Return whether a job holds a claim on any of its inputs."""
    references = (state.files.reference(name, job.partition_id) for name in job.inputs)
    return any(each is not None and each.job_id == job.job_id for each in references)


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
    for filename in job.inputs:
        reference = state.files.reference(filename, job.partition_id)
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
        claimed = max(claimed, reference.updated or _EPOCH)
    return ClaimedJob(
        job=job,
        partition=partition,
        whole_files=frozenset(whole),
        claimed_ms=int(claimed.timestamp() * 1000),
        sequence=state.number,
        schema_id=state.schema_id,
    )
