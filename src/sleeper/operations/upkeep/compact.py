"""Runs one compaction job: its files become one (spec CMP-14, CMP-16)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from sleeper.engine.read_leaves import Reading
from sleeper.engine.writing.compacted_file import CompactedFile, compact_files
from sleeper.engine.writing.data_file import WriteSettings
from sleeper.errors import CommitRefused, SleeperError, StorageFailed
from sleeper.model import paths
from sleeper.model.formats.compaction_job import CompactionJob
from sleeper.planning.claimed_jobs import claimed_job
from sleeper.state.state_store import StateStore
from sleeper.state.transactions.claims import JobAssignment, ReleaseJobIds
from sleeper.state.transactions.files import ReplaceFiles
from sleeper.storage.ports import Objects


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactResult:
    """What became of one job.

    Attributes:
        job: The job.
        rows_read: Rows of its inputs that lie in the partition.
        rows_written: Rows of the new file; fewer where the table filters or aggregates.
        failure: Why the job failed; None if all is well. Its inputs are as they were, and free
            for another job.
        transaction: The table's transaction number afterwards.
    """

    job: CompactionJob
    rows_read: int = 0
    rows_written: int = 0
    failure: SleeperError | None = None
    transaction: int


def compact(
    job: CompactionJob,
    *,
    store: StateStore,
    files: Objects,
    reading: Reading,
    settings: WriteSettings,
) -> CompactResult:
    """Write a job's output and put it in the place of its inputs, in one commit.

    Queries see the inputs or the output, never both. A job that fails releases its inputs. One
    that comes too late, when its inputs are claimed by another job, is refused, and the file that
    it wrote deleted.

    Args:
        job: A job that has claimed its inputs.
        store: The table's state.
        files: The table's folder.
        reading: The table, with the processing to apply.
        settings: How the file is laid out.

    Raises:
        CommitContended, CommitUnknown: run the same job again; it is committed once.
    """
    try:
        claimed = claimed_job(store.refresh(), job)
        written = compact_files(
            reading,
            files,
            job,
            claimed.partition,
            settings,
            whole_files=claimed.whole_files,
            now_ms=claimed.claimed_ms,
        )
    except SleeperError as failure:
        return CompactResult(job=job, failure=failure, transaction=_release(job, store))
    return _replaced(job, written, store, files)


def _replaced(
    job: CompactionJob, written: CompactedFile, store: StateStore, files: Objects
) -> CompactResult:
    transaction = ReplaceFiles(job_id=job.job_id, inputs=job.inputs, output=written.reference)
    try:
        after = store.commit(transaction)
    except CommitRefused as refusal:
        state = store.refresh()
        if not state.files.is_tracked(job.output):
            with suppress(StorageFailed):
                files.delete([job.output, paths.sketch_file(job.output)])
        return CompactResult(job=job, failure=refusal, transaction=state.number)
    return CompactResult(
        job=job,
        rows_read=written.rows_read,
        rows_written=written.reference.row_count,
        transaction=after.number,
    )


def _release(job: CompactionJob, store: StateStore) -> int:
    claim = JobAssignment(job_id=job.job_id, partition_id=job.partition_id, filenames=job.inputs)
    return store.commit(ReleaseJobIds(claims=(claim,))).number
