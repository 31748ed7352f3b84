"""Runs compaction jobs: each merges its files into one (rules CMP-14, CMP-16)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta

from sleeper.engine.read_leaves import TableReader
from sleeper.engine.writing.compaction_output import CompactionOutput, compact_files
from sleeper.engine.writing.data_file import WriteSettings
from sleeper.errors import (
    CommitRefused,
    MissingExtra,
    SleeperError,
    StorageFailed,
    TableFunctionFailed,
)
from sleeper.model.formats.compaction_job import CompactionJob
from sleeper.notebook_html import NotebookHtml
from sleeper.ports.objects import Objects
from sleeper.state.added_files import SweepGuard, replace_files
from sleeper.state.plans.claims import ClaimedJob, claimed_job
from sleeper.state.state_store import StateStore
from sleeper.state.transactions.claims import Claim, ReleaseClaims
from sleeper.state.transactions.files import ReplaceFiles

_log = logging.getLogger(__name__)

_FAILURES_MAX = 3
_FAILURES_OF_THE_TABLE = (TableFunctionFailed, MissingExtra)  # others are of one job's files

Runner = Callable[
    [Iterable[ClaimedJob], Callable[[ClaimedJob], CompactionOutput]],
    Generator[tuple[ClaimedJob, CompactionOutput | SleeperError], None, None],
]
"""Calls a function for each job, and yields its result, or the `SleeperError` that it raised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionJobResult(NotebookHtml):
    """The result of one job.

    Attributes:
        job: The job.
        rows_read: Rows of its inputs that are in the partition.
        rows_written: Rows of the new file; fewer if the table filters or aggregates.
        failure: Why the job failed; None if it succeeded. The inputs of a failed job are
            unchanged and released.
        transaction: The table's transaction number afterwards.
    """

    job: CompactionJob
    rows_read: int = 0
    rows_written: int = 0
    failure: SleeperError | None = None
    transaction: int


def should_stop(ended: Sequence[CompactionJobResult]) -> bool:
    """Return True when other jobs of a run would fail as its first ones did.

    That is after three jobs, when none was done, and the table's function or the Python of Spark's
    workers made each of them fail. A damaged file fails its own job only.
    """
    stop = len(ended) >= _FAILURES_MAX and all(
        isinstance(each.failure, _FAILURES_OF_THE_TABLE) for each in ended
    )
    if stop:
        _log.warning(
            "no more compaction jobs are run: all of the first %d failed, the last in leaf %s: %s",
            len(ended),
            ended[-1].job.partition_id,
            ended[-1].failure,
        )
    return stop


def compact(
    jobs: Iterable[CompactionJob],
    *,
    store: StateStore,
    files: Objects,
    write: Callable[[ClaimedJob], CompactionOutput],
    run: Runner,
    orphan_age: timedelta,
) -> Generator[CompactionJobResult, None, None]:
    """Write each job's output and replace its inputs by it, in one commit for each job.

    Queries see the inputs or the output, never both. A failed job releases its inputs. If another
    job has claimed its inputs in the meantime, the commit is refused and the output is deleted.
    Results are yielded when jobs end, in any order. Closing the iterator ends the run; the caller
    must release the claims of jobs that have not ended.

    Args:
        jobs: Jobs that have claimed their inputs. Each is taken when it can be run.
        store: The table's state.
        files: The table's folder.
        write: Writes a job's output; `write_output`, with all but its first argument.
        run: Runs the jobs, in this process or in others.
        orphan_age: The age from which on a sweep deletes files that no transaction names.

    Raises:
        CommitContended, CommitUnknown: run the same job again; it is committed once.
    """
    guard = SweepGuard(files=files, started=store.time(), orphan_age=orphan_age)
    for job, written in _written(jobs, store, write, run):
        if isinstance(written, SleeperError):
            _log.info("compaction job %s failed: %s", job.job_id, written)
            number = _release(job, store)
            yield CompactionJobResult(job=job, failure=written, transaction=number)
        else:
            yield _replaced(job, written, store, guard)


def _written(
    jobs: Iterable[CompactionJob],
    store: StateStore,
    write: Callable[[ClaimedJob], CompactionOutput],
    run: Runner,
) -> Iterator[tuple[CompactionJob, CompactionOutput | SleeperError]]:
    """Yield the output of each job, or why it failed."""
    refused: list[tuple[CompactionJob, SleeperError]] = []

    def claimed() -> Iterator[ClaimedJob]:
        for job in jobs:
            try:
                yield claimed_job(store.refresh(), job)
            except SleeperError as failure:
                refused.append((job, failure))

    with closing(run(claimed(), write)) as ended:
        for each, written in ended:
            yield each.job, written
    yield from refused


def write_output(
    claimed: ClaimedJob,
    reading: Callable[[], TableReader],
    files: Objects,
    settings: WriteSettings,
    check: Callable[[], None] = lambda: None,
) -> CompactionOutput:
    """Write a job's output without committing it. Needs no state, so it may run anywhere.

    Args:
        claimed: The job.
        reading: Opens the table, with the processing to apply.
        files: The table's folder.
        settings: Settings of the data file.
        check: Called often while the job runs; what it raises ends the job.
    """
    return compact_files(reading(), files, claimed, settings, check)


def _replaced(
    job: CompactionJob, written: CompactionOutput, store: StateStore, guard: SweepGuard
) -> CompactionJobResult:
    transaction = ReplaceFiles(job_id=job.job_id, inputs=job.inputs, output=written.reference)
    try:
        after = replace_files(transaction, store=store, guard=guard)
    except CommitRefused as refusal:
        _log.info("compaction job %s was refused: %s", job.job_id, refusal)
        state = store.refresh()
        if not state.files.is_tracked(job.output):
            _delete_output(job, guard.files)
        return CompactionJobResult(job=job, failure=refusal, transaction=state.number)
    return CompactionJobResult(
        job=job,
        rows_read=written.rows_read,
        rows_written=written.reference.row_count,
        transaction=after.number,
    )


def _delete_output(job: CompactionJob, files: Objects) -> None:
    try:
        files.delete([job.output])
        _log.info("deleted %s, which no commit names", job.output)
    except StorageFailed as failure:
        _log.warning("%s is left for the sweep of orphans: %s", job.output, failure)


def _release(job: CompactionJob, store: StateStore) -> int:
    claim = Claim(job_id=job.job_id, partition_id=job.partition_id, filenames=job.inputs)
    return store.commit(ReleaseClaims(claims=(claim,))).number
