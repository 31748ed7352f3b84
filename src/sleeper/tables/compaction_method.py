"""`Table.compact` and the claims of compaction jobs."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Protocol

from sleeper.engine.read_leaves import TableReader
from sleeper.engine.writing.compaction_output import CompactionOutput
from sleeper.engine.writing.data_file import write_settings
from sleeper.errors import BadRequest
from sleeper.model.files import ClaimOwner
from sleeper.model.formats.compaction_job import CompactionJob
from sleeper.notebook_html import NotebookHtml
from sleeper.spark.compaction import compaction_runner
from sleeper.spark.data_source.open_table import cached_table_reader
from sleeper.spark.separate_jobs import AT_ONCE as SPARK_JOBS_AT_ONCE
from sleeper.state.plans.claims import ClaimedJob, HeldClaim, held_claims
from sleeper.state.plans.compactions import CompactionPlan, CompactionSettings, plan_compactions
from sleeper.state.state_store import StateStore
from sleeper.state.table_state import TableState
from sleeper.tables.claims import (
    ClaimSettings,
    JobClaims,
    ReleaseResult,
    expired_released,
    release_expired_jobs,
    release_jobs,
)
from sleeper.tables.compact import CompactionJobResult, Runner, should_stop, write_output
from sleeper.tables.compact import compact as run_compactions
from sleeper.tables.handle import OpenedTable, TableHandle
from sleeper.tables.push_down import push_down_references, pushed_down
from sleeper.tables.spark import open_for_spark
from sleeper.tables.worker_processes import run_pieces

if TYPE_CHECKING:  # an extra, and slow to import
    from pyspark.sql import SparkSession


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


class CompactionWatch(Protocol):
    """Follows a run of `Table.compact`, and says when it ends. All calls come from its thread."""

    def room(self) -> int:
        """Return how many more jobs may be claimed now; at 0 no more are, and the run ends."""
        ...

    def claimed(self, jobs: Sequence[CompactionJob]) -> None:
        """Take note that the files of these jobs were claimed."""
        ...

    def started(self, job: CompactionJob) -> None:
        """Take note that a job begins to run."""
        ...

    def check(self) -> None:
        """Go on, or raise to end the run at once; called often while a job runs."""
        ...

    def ended(self, result: CompactionJobResult) -> None:
        """Take note of what became of a job."""
        ...


def plan_compaction(self: TableHandle, *, all_files: bool = False) -> CompactionPlan:
    """Return what `compact` would do now, leaf by leaf, with reasons; nothing is changed.

    References of split partitions are counted on the leaves to which `compact` would move them.
    Files of claims whose lease has ended count as free.
    """
    opened = self._current()
    state, now = opened.store.refresh(), self._context.now()
    state = expired_released(state, _lease(opened), max(now, state.at or now))
    state = pushed_down(state, files=opened.files, schema=self.schema)
    return _plan(self, opened, state, all_files=all_files)


def compact(
    self: TableHandle,
    *,
    all_files: bool = False,
    workers: int = 1,
    spark: SparkSession | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    watch: CompactionWatch | None = None,
) -> CompactionSummary:
    """Merge files, leaf by leaf, so that queries read fewer files.

    References of split partitions are moved to the leaves first. Each job has a commit of its
    own. Files are claimed for a few jobs at a time, and claims are renewed while the jobs run.
    If a run is killed, its committed jobs stay, and so do a few claims: the next run releases
    them after `sleeper.table.compaction.job.lease.minutes`; `release_claims` does it at once.
    A running job needs about 1 GiB of memory, however many rows it has.

    Args:
        all_files: Merge also files that the strategy leaves out, until each leaf has one file.
        workers: Number of jobs that run in parallel; from two on, each in its own process.
        spark: A session, classic or Connect, whose workers run the jobs, one on each core,
            instead of this machine. They must reach the instance by the same URL.
        progress: Called with the number of jobs that have ended, and the number of all jobs.
        watch: Follows the jobs, for a worker; only without `workers` and `spark`.

    Returns:
        The result, including failed jobs. The table stays readable if jobs fail.

    Raises:
        CommitContended, CommitUnknown, StorageFailed: try again.
        TableNotFound: the table was deleted.
        BadRequest: `workers`, `spark` or `watch` are given together, or Spark misses the instance.

    Source: rules CMP-1 to CMP-9, CMP-14, CMP-16.
    """
    opened = self._current()
    reading, run = _runner(self, opened, workers, spark, watch)
    released = release_expired_jobs(_lease(opened), store=opened.store)
    moved = push_down_references(store=opened.store, files=opened.files, schema=self.schema).moved
    plan = partial(_plan, self, opened, all_files=all_files)
    first, stopped = plan(opened.store.refresh()), False
    ended: list[CompactionJobResult] = []
    jobs_max = 2 * workers if spark is None else SPARK_JOBS_AT_ONCE
    with _claims_of_run(opened.store, _claim_settings(self, opened, jobs_max), watch) as held:
        again = (lambda at: plan(at).jobs) if all_files else None
        rounds = held.rounds(_in_order(first, watch), again)
        with closing(_results(opened, rounds, reading, run, watch)) as results:
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
        transaction=opened.store.state().number,
    )


def claims(self: TableHandle) -> tuple[HeldClaim, ...]:
    """Return the claims of compaction jobs: their files, owners and times.

    A claim ends `sleeper.table.compaction.job.lease.minutes` after its last renewal.
    """
    opened = self._current()
    state, now = opened.store.refresh(), self._context.now()
    return held_claims(state, _lease(opened), max(now, state.at or now))


def release_claims(
    self: TableHandle, job_id: str | None = None, *, expired_only: bool = False
) -> ReleaseResult:
    """Release the claims of compaction jobs, so that other jobs may compact their files.

    Use it for claims of processes that have died. If a job is still running, its commit is
    refused. The next compaction releases claims whose lease has ended anyway.

    Args:
        job_id: The job; without it, all jobs of the table.
        expired_only: Release the claims of all jobs whose lease has ended, and no others.

    Raises:
        BadRequest: `job_id` and `expired_only` are given together.
        CommitContended, CommitUnknown, StorageFailed: try again.
        TableNotFound: the table was deleted.

    Source: ours; upstream's claims do not end.
    """
    opened = self._current()
    if not expired_only:
        return release_jobs(job_id, _lease(opened), store=opened.store)
    if job_id is not None:
        raise BadRequest("give release_claims a job_id or expired_only=True, not both")
    return release_expired_jobs(_lease(opened), store=opened.store)


def _plan(
    self: TableHandle, opened: OpenedTable, state: TableState, *, all_files: bool
) -> CompactionPlan:
    settings = CompactionSettings.of(opened.properties.compaction, opened.store.changes_max)
    return plan_compactions(state, settings, all_files=all_files, new_id=self._context.new_id)


def _lease(opened: OpenedTable) -> timedelta:
    return timedelta(minutes=opened.properties.compaction.lease_minutes)


def _claim_settings(self: TableHandle, opened: OpenedTable, jobs_max: int) -> ClaimSettings:
    context = self._context
    renew_every_s = _lease(opened).total_seconds() / 3
    owner = ClaimOwner(host=context.host, pid=os.getpid(), worker_id=context.new_id())
    return ClaimSettings(owner=owner, jobs_max=jobs_max, renew_every_s=renew_every_s)


def _claims_of_run(
    store: StateStore, settings: ClaimSettings, watch: CompactionWatch | None
) -> JobClaims:
    if watch is None:
        return JobClaims(store, settings)
    return JobClaims(store, settings, room=watch.room, claimed=watch.claimed)


def _in_order(plan: CompactionPlan, watch: CompactionWatch | None) -> Sequence[CompactionJob]:
    """Return the jobs in the order in which they are claimed.

    A worker takes them in the order of their ids, which are random: workers that plan the same jobs
    begin with different ones, and a run that ends early has not always tried the same leaves.
    """
    return plan.jobs if watch is None else sorted(plan.jobs, key=lambda job: job.job_id)


def _runner(
    self: TableHandle,
    opened: OpenedTable,
    workers: int,
    spark: SparkSession | None,
    watch: CompactionWatch | None,
) -> tuple[Callable[[], TableReader], Runner]:
    """Return a function that opens the table where jobs run, and the runner of jobs."""
    if watch is not None and (workers != 1 or spark is not None):
        raise BadRequest("watch= follows jobs of this process: leave out workers= and spark=")
    if spark is None:
        # This process uses its readers; each worker process opens new ones.
        reading = (lambda: opened.reader) if workers == 1 else opened.open_reader
        return reading, partial(run_pieces, workers=workers)
    if workers != 1:
        raise BadRequest(
            f"workers={workers} starts processes on this machine, and spark= uses Spark's workers: "
            "leave one of them out"
        )
    files = open_for_spark(self).table_files
    title = f"sleeper: compact {self.name}"
    return partial(cached_table_reader, files), compaction_runner(spark, files.files, title=title)


def _results(
    opened: OpenedTable,
    rounds: Iterable[Iterable[CompactionJob]],
    reading: Callable[[], TableReader],
    run: Runner,
    watch: CompactionWatch | None,
) -> Generator[CompactionJobResult, None, None]:
    """Run the jobs of each round, and yield what became of each as it ends."""
    write = partial(
        write_output,
        reading=reading,
        files=opened.files,
        settings=write_settings(opened.properties.parquet),
    )
    for jobs in rounds:
        results = run_compactions(
            jobs,
            store=opened.store,
            files=opened.files,
            write=write
            if watch is None
            else partial(_watched, watch, partial(write, check=watch.check)),
            run=run,
            orphan_age=timedelta(minutes=opened.properties.gc.orphan_age_minutes),
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
