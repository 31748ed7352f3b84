"""Compaction: merges data files, leaf by leaf, so that queries read fewer.

Words: a plan says for each leaf which files are merged, and why; a job is one merge, of files of
one leaf into one; a claim gives a job its files until a lease ends; a round is all jobs of a plan;
a watch follows a run of a worker, and ends it.

1. claims whose lease has ended are released (`claims`), and references of split partitions are
   moved down to the leaves (`push_down`)
2. the files of each leaf are planned as jobs; nobody else may compact the files of a job whose
   claim is committed (`claims.JobClaims`)
3. each job merges its inputs into one output: here, in other processes, or in Spark's workers
4. each output replaces its inputs in one transaction of its own; jobs that end together have one
   commit. A job that fails, or is refused, changes nothing and releases its inputs
5. with `all_files`, what is left is planned again, until each leaf has one file

Rules CMP-1 to CMP-9, CMP-14 and CMP-16.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Protocol

from sleeper.engine.reading.read_leaves import TableReader
from sleeper.engine.reading.small_files import SmallFiles
from sleeper.engine.writing.compaction_output import CompactionOutput, compact_files
from sleeper.engine.writing.discard import discard_files
from sleeper.engine.writing.write_settings import WriteSettings, write_settings
from sleeper.errors import (
    BadRequest,
    CommitRefused,
    MissingExtra,
    SleeperError,
    TableFunctionFailed,
)
from sleeper.html.values import NotebookHtml
from sleeper.model.files import FileReference
from sleeper.model.formats.compaction_job import CompactionJob
from sleeper.ports.ids import NewId
from sleeper.ports.objects import Objects
from sleeper.state.new_files import SweepGuard, replace_files
from sleeper.state.plans.claims import ClaimedJob, claimed_job
from sleeper.state.plans.compactions import CompactionPlan, CompactionSettings, plan_compactions
from sleeper.state.state_store import StateStore
from sleeper.state.table_state import TableState
from sleeper.state.transactions.files import Claim, ReleaseClaims, ReplaceFiles
from sleeper.tables.claims import (
    ClaimsWatch,
    claims_of_run,
    expired_released,
    lease_of,
    release_expired_jobs,
)
from sleeper.tables.open_table import OpenTable
from sleeper.tables.push_down import push_down_references, pushed_down
from sleeper.tables.worker_processes import run_pieces

if TYPE_CHECKING:  # an extra, and slow to import
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

_BATCH_FILES = "sleeper.table.compaction.files.batch.size"
_FAILURES_MAX = 3
_FAILURES_OF_THE_TABLE = (TableFunctionFailed, MissingExtra)  # others are of one job's files

Outcome = tuple[ClaimedJob, CompactionOutput | SleeperError]
Runner = Callable[
    [Iterable[ClaimedJob], Callable[[ClaimedJob], CompactionOutput]],
    Generator[Sequence[Outcome], None, None],
]
"""Calls a function for each job, and yields its result, or the `SleeperError` that it raised; jobs
that end together are committed together."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionSummary(NotebookHtml):
    """The result of a compaction run.

    Attributes:
        plan: The plan of each leaf.
        jobs: The result of each job, in the order in which they ended.
        pushed_down: References of split partitions that were moved to leaves before.
        stopped: True when jobs were not run, because the first ones failed for a reason that all
            share: the table's function, or a Python of Spark's workers that cannot run Sleeper.
        released: Ids of jobs that had claimed files and did not end in time.
        transaction: The table's transaction number afterwards.
    """

    plan: CompactionPlan
    jobs: tuple[CompactionJobResult, ...]
    pushed_down: int
    stopped: bool = False
    released: tuple[str, ...]
    transaction: int

    @property
    def failed(self) -> tuple[CompactionJobResult, ...]:
        """Jobs that failed; their input files are unchanged."""
        return tuple(job for job in self.jobs if job.failure is not None)


class CompactionWatch(ClaimsWatch, Protocol):
    """Follows a run of `Table.compact`, and says when it ends. All calls come from its thread."""

    def started(self, job: CompactionJob) -> None:
        """Take note that a job begins to run."""
        ...

    def check(self) -> None:
        """Go on, or raise to end the run at once; called often while a job runs."""
        ...

    def ended(self, result: CompactionJobResult) -> None:
        """Take note of what became of a job."""
        ...


def plan_compaction(table: OpenTable, *, all_files: bool) -> CompactionPlan:
    """Return what `compact` would do now; nothing is changed (`Table.plan_compaction`)."""
    state, now = table.store.refresh(), table.context.clock.now()
    state = expired_released(state, lease_of(table), max(now, state.at or now))
    return _plan(table, pushed_down(table, state), all_files=all_files)


def compact(
    table: OpenTable,
    *,
    all_files: bool = False,
    workers: int = 1,
    spark: SparkSession | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    watch: CompactionWatch | None = None,
    only: Callable[[FileReference], bool] = lambda reference: True,
) -> CompactionSummary:
    """Merge files, leaf by leaf (`Table.compact`); of some references `only`, for other verbs."""
    running = _running(table, workers, spark, watch)
    released = release_expired_jobs(lease_of(table), store=table.store)
    moved = push_down_references(table).moved
    plan = partial(_plan, table, only=only)
    first, stopped = plan(table.store.refresh(), all_files=all_files), False
    ended: list[CompactionJobResult] = []
    with claims_of_run(table, running.jobs_max, watch) as held:

        def next_round(at: TableState) -> Sequence[CompactionJob]:
            return _in_order(plan(at, all_files=True).jobs, at, spark, watch)

        again = next_round if all_files else None
        rounds = held.rounds(_in_order(first.jobs, table.store.state(), spark, watch), again)
        with closing(_results(table, rounds, running, watch)) as results:
            for result in results:
                ended.append(result)
                progress(len(ended), held.planned)
                if stopped := len(ended) < held.planned and should_stop(ended):
                    break
    return CompactionSummary(
        plan=first,
        jobs=tuple(ended),
        pushed_down=moved,
        stopped=stopped,
        released=tuple(sorted({claim.job_id for claim in released.claims})),
        transaction=table.store.state().number,
    )


def _plan(
    table: OpenTable,
    state: TableState,
    *,
    all_files: bool,
    only: Callable[[FileReference], bool] = lambda reference: True,
) -> CompactionPlan:
    properties = table.properties
    joins_small = not properties.is_given(_BATCH_FILES)
    settings = CompactionSettings.of(
        properties.compaction, table.store.changes_max, joins_small=joins_small
    )
    return plan_compactions(
        state,
        settings,
        all_files=all_files,
        only=only,
        schema_id=table.schema.number,
        new_id=table.context.new_id,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Running:
    """Where and how jobs run.

    Attributes:
        reading: Opens the table there.
        run: Runs jobs.
        jobs_max: How many are claimed together.
        attempt_id: Makes an id for each attempt of a job; None where a job has one attempt.
        small: Reads small files once for all jobs, where these run in this process.
    """

    reading: Callable[[], TableReader]
    run: Runner
    jobs_max: int
    attempt_id: NewId | None = None
    small: SmallFiles | None = None


def _running(
    table: OpenTable,
    workers: int,
    spark: SparkSession | None,
    watch: CompactionWatch | None,
) -> _Running:
    if type(workers) is not int or workers < 1:
        raise BadRequest(f"workers={workers!r} must be a whole number of processes, 1 or more")
    if watch is not None and (workers != 1 or spark is not None):
        raise BadRequest("watch= follows jobs of this process: leave out workers= and spark=")
    if spark is None:
        # This process uses its readers; each worker process opens new ones.
        run_here_too = partial(run_here, workers=workers)
        if workers > 1:
            return _Running(reading=table.open_reader, run=run_here_too, jobs_max=2 * workers)
        small = SmallFiles(table.reader.lookup, table.reader.arrow_schema)
        return _Running(reading=lambda: table.reader, run=run_here_too, jobs_max=2, small=small)
    if workers != 1:
        raise BadRequest(
            f"workers={workers} starts processes on this machine, and spark= uses Spark's workers: "
            "leave one of them out"
        )
    from sleeper.spark.compaction import compaction_runner
    from sleeper.spark.data_source.open_table import cached_table_reader
    from sleeper.spark.piece_jobs import cluster_cores, plan_jobs
    from sleeper.tables.spark import open_for_spark

    files = open_for_spark(table).table_files
    return _Running(
        reading=partial(cached_table_reader, files),
        run=compaction_runner(spark, files.files, title=f"sleeper: compact {table.name}"),
        jobs_max=plan_jobs(cluster_cores(spark)).pieces,
        attempt_id=table.context.new_id,
    )


def _in_order(
    jobs: Sequence[CompactionJob],
    state: TableState,
    spark: SparkSession | None,
    watch: CompactionWatch | None,
) -> Sequence[CompactionJob]:
    """Return the jobs in the order in which they are claimed.

    A worker takes them in the order of their ids, which are random: workers that plan the same jobs
    begin with different ones, and a run that ends early has not always tried the same leaves. On
    Spark the largest come first, so that those that run together end at about the same time.
    """
    if watch is not None:
        return sorted(jobs, key=lambda job: job.job_id)
    if spark is not None:
        return sorted(jobs, key=lambda job: -_input_rows(job, state))
    return jobs


def _input_rows(job: CompactionJob, state: TableState) -> int:
    references = state.files.references_named(job.inputs, job.partition_id)
    return sum(each.row_count for each in references if each is not None)


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


def _results(
    table: OpenTable,
    rounds: Iterable[Iterable[CompactionJob]],
    running: _Running,
    watch: CompactionWatch | None,
) -> Generator[CompactionJobResult, None, None]:
    """Run the jobs of each round, and yield what became of each as it ends."""
    write = partial(
        write_output,
        reading=running.reading,
        files=table.files,
        settings=write_settings(table.properties.parquet),
        attempt_id=running.attempt_id,
        small=running.small,
    )
    for jobs in rounds:
        results = run_jobs(
            jobs,
            store=table.store,
            files=table.files,
            write=write
            if watch is None
            else partial(_watched, watch, partial(write, check=watch.check)),
            run=running.run,
            orphan_age=table.orphan_age(),
        )
        with closing(results):
            for result in results:
                if watch is not None:
                    watch.ended(result)
                yield result


def _watched(
    watch: CompactionWatch, write: Callable[[ClaimedJob], CompactionOutput], claimed: ClaimedJob
) -> CompactionOutput:
    watch.check()
    watch.started(claimed.job)
    return write(claimed)


def run_jobs(
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
    for ended in _written(jobs, store, write, run):
        for job, failure in ended:
            if isinstance(failure, SleeperError):
                _log.info("compaction job %s failed: %s", job.job_id, failure)
                number = _release(job, store)
                yield CompactionJobResult(job=job, failure=failure, transaction=number)
        outputs = [(job, out) for job, out in ended if isinstance(out, CompactionOutput)]
        yield from _replaced(outputs, store, guard)


def _written(
    jobs: Iterable[CompactionJob],
    store: StateStore,
    write: Callable[[ClaimedJob], CompactionOutput],
    run: Runner,
) -> Iterator[Sequence[tuple[CompactionJob, CompactionOutput | SleeperError]]]:
    """Yield the outputs of jobs that ended together, or why they failed."""
    refused: list[tuple[CompactionJob, SleeperError]] = []

    def claimed() -> Iterator[ClaimedJob]:
        for job in jobs:
            try:
                yield claimed_job(store.state(), job)  # the claim has just been committed
            except SleeperError as failure:
                refused.append((job, failure))

    with closing(run(claimed(), write)) as running:
        for ended in running:
            yield [(each.job, written) for each, written in ended]
    yield refused


def run_here(
    jobs: Iterable[ClaimedJob],
    write: Callable[[ClaimedJob], CompactionOutput],
    *,
    workers: int,
) -> Generator[Sequence[Outcome], None, None]:
    """Run jobs in this process, or in `workers` processes of this machine; yield each by itself."""
    with closing(run_pieces(jobs, write, workers=workers)) as outcomes:
        for outcome in outcomes:
            yield [outcome]


def write_output(
    claimed: ClaimedJob,
    reading: Callable[[], TableReader],
    files: Objects,
    settings: WriteSettings,
    check: Callable[[], None] = lambda: None,
    attempt_id: NewId | None = None,
    small: SmallFiles | None = None,
) -> CompactionOutput:
    """Write a job's output without committing it. Needs no state, so it may run anywhere.

    Args:
        claimed: The job.
        reading: Opens the table, with the processing to apply.
        files: The table's folder.
        settings: Settings of the data file.
        check: Called often while the job runs; what it raises ends the job.
        attempt_id: Makes an id for the name of the output, where several attempts may run at once.
        small: Reads small files; None for a reader of this job alone.
    """
    output = None if attempt_id is None else claimed.job.output_of(attempt_id())
    return compact_files(reading(), files, claimed, settings, check, output=output, small=small)


def _replaced(
    outputs: Sequence[tuple[CompactionJob, CompactionOutput]],
    store: StateStore,
    guard: SweepGuard,
) -> Iterator[CompactionJobResult]:
    """Commit outputs, and yield the result of each job."""
    if not outputs:
        return
    transactions = [
        ReplaceFiles(job_id=job.job_id, inputs=job.inputs, output=written.reference)
        for job, written in outputs
    ]
    outcomes = replace_files(transactions, store=store, guard=guard)
    for (job, written), outcome in zip(outputs, outcomes, strict=True):
        if isinstance(outcome, CommitRefused):
            filename = written.reference.filename
            _log.info("compaction job %s was refused: %s", job.job_id, outcome)
            state = store.refresh()
            if not state.files.is_tracked(filename):
                discard_files([filename], guard.files)
            yield CompactionJobResult(job=job, failure=outcome, transaction=state.number)
            continue
        yield CompactionJobResult(
            job=job,
            rows_read=written.rows_read,
            rows_written=written.reference.row_count,
            transaction=outcome.number,
        )


def _release(job: CompactionJob, store: StateStore) -> int:
    claim = Claim(job_id=job.job_id, partition_id=job.partition_id, filenames=job.inputs)
    return store.commit(ReleaseClaims(claims=(claim,))).number
