"""Compaction jobs on Spark: one task a job, in Python workers; no row passes through the JVM.

Jobs are independent: each comes back as it ends and is committed for itself, and one that fails
fails alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from sleeper.engine.writing.compaction_output import CompactionOutput, compact_files
from sleeper.engine.writing.data_file import WriteSettings
from sleeper.errors import CommitRefused, ObjectNotFound, StorageFailed
from sleeper.model import paths
from sleeper.model.formats.compaction_job import CompactionJob
from sleeper.planning.claimed_jobs import ClaimedJob
from sleeper.ports.objects import Objects
from sleeper.spark.data_source.open_table import TableFiles, cached_table_reader
from sleeper.spark.separate_jobs import AT_ONCE, run_separately
from sleeper.state.state_store import StateStore
from sleeper.state.transactions.files import ReplaceFiles

if TYPE_CHECKING:  # an extra, and slow to import
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionOutcome:
    """What became of one job.

    Attributes:
        job: The job.
        written: The file it wrote; None where it failed.
        failure: Why the job failed, or why its commit was refused; None if all is well.
        transaction: The transaction that committed it here; None before.
        repeated: True when the job had been committed before: its work is done, and nothing
            was added.
    """

    job: CompactionJob
    written: CompactionOutput | None = None
    failure: Exception | None = None
    transaction: int | None = None
    repeated: bool = False

    @property
    def orphan(self) -> str | None:
        """A file that was written and that no transaction will ever name, if there is one."""
        refused = self.failure is not None and self.written is not None
        return self.job.output if refused else None


def run_compactions(
    spark: SparkSession,
    jobs: Sequence[ClaimedJob],
    table: TableFiles,
    settings: WriteSettings,
    *,
    progress: Callable[[int, int], None] | None = None,
    at_once: int = AT_ONCE,
) -> Iterator[CompactionOutcome]:
    """Run jobs and yield what became of each, as they end. Nothing is committed.

    Commit each outcome when it comes (`commit_compaction`): then nothing that has ended is lost,
    whatever befalls the rest. A task uses one core, and memory as `compact_files` says. Closing
    the iterator cancels what has not ended.

    Args:
        spark: Any session, classic or Connect, whose workers reach the table's folder.
        jobs: Jobs that have claimed their inputs.
        table: The table's files, and the processing to apply.
        settings: How data files are written.
        progress: Called with how many jobs have ended, and of how many.
        at_once: Jobs that Spark is given at once; more than the cluster has cores is no use.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed; what ran is cancelled.
    """
    compact = partial(_compact, table=table, settings=settings)
    ended = run_separately(
        spark,
        jobs,
        compact,
        describe=lambda claimed: f"sleeper: compact, job {claimed.job.job_id}",
        at_once=at_once,
    )
    for done, each in enumerate(ended, 1):
        if progress is not None:
            progress(done, len(jobs))
        yield CompactionOutcome(job=each.piece.job, written=each.result, failure=each.failure)


def commit_compaction(
    outcome: CompactionOutcome, store: StateStore, files: Objects
) -> CompactionOutcome:
    """Commit what a job wrote, and return the outcome with the transaction, or the refusal.

    A job that failed is returned as it is. One that finishes too late, when its inputs were given
    to another job, is refused by the state and leaves an orphan: a file that nobody references.

    Args:
        outcome: Of `run_compactions`.
        store: The table's state.
        files: The table's folder, as this process reaches it.

    Raises:
        StorageFailed: the file is not where this process looks for it; nothing was committed.
        CommitContended, CommitUnknown: as `StateStore.commit`; commit it again.
    """
    written = outcome.written
    if written is None:
        return outcome
    _check_there(written, files)
    transaction = ReplaceFiles(
        job_id=outcome.job.job_id, inputs=outcome.job.inputs, output=written.reference
    )
    try:
        state = store.commit(transaction)
    except CommitRefused as refusal:
        if store.refresh().files.is_tracked(outcome.job.output):
            return replace(outcome, repeated=True)
        return replace(outcome, failure=refusal)
    return replace(outcome, transaction=state.number)


def _compact(claimed: ClaimedJob, table: TableFiles, settings: WriteSettings) -> CompactionOutput:
    return compact_files(cached_table_reader(table), table.files, claimed, settings)


def _check_there(written: CompactionOutput, files: Objects) -> None:
    """See that this process finds the file: a worker may have written to a disk of its own."""
    filename = written.reference.filename
    try:
        size_bytes = files.size(filename)
        files.size(paths.sketch_file(filename))
    except ObjectNotFound as error:
        raise StorageFailed(
            f"Spark's workers wrote a file that this process does not find ({error}). Nothing was "
            "committed. Workers and driver must reach the instance at the same place: use an "
            "object store, a shared file system, or local mode"
        ) from None
    if size_bytes != written.size_bytes:
        raise StorageFailed(
            f"{filename} has {size_bytes:,} bytes here, but a worker of Spark wrote "
            f"{written.size_bytes:,}. Nothing was committed. Run the job again."
        )
