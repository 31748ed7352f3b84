"""What keeps a table quick and small: compaction, splitting, garbage collection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from sleeper.engine.read_leaves import TableReader
from sleeper.engine.writing.data_file import write_settings
from sleeper.errors import BadRequest
from sleeper.model.formats.compaction_job import CompactionJob
from sleeper.model.properties import TableProperties
from sleeper.model.schema import Schema
from sleeper.operations.maintenance.collect_garbage import collect_garbage as collect_batch
from sleeper.operations.maintenance.collect_garbage import garbage as plan_garbage
from sleeper.operations.maintenance.compact import CompactionJobResult, Runner, write_output
from sleeper.operations.maintenance.compact import compact as run_compactions
from sleeper.operations.maintenance.create_compaction_jobs import create_compaction_jobs
from sleeper.operations.maintenance.merge_leaves import MergeResult, merge_leaves
from sleeper.operations.maintenance.push_down_references import push_down_references
from sleeper.operations.maintenance.release_jobs import release_expired_jobs
from sleeper.operations.maintenance.split_leaf import SplitResult, split_leaf
from sleeper.operations.maintenance.sweep_orphans import SweepResult
from sleeper.operations.maintenance.sweep_orphans import sweep_orphans as sweep
from sleeper.operations.maintenance.worker_processes import run_pieces
from sleeper.planning.compactions import CompactionPlan, CompactionSettings, plan_compactions
from sleeper.planning.merges import SiblingLeaves
from sleeper.planning.merges import small_siblings as plan_merges
from sleeper.planning.splits import LeafSize
from sleeper.planning.splits import leaf_sizes as plan_splits
from sleeper.spark.compaction import compaction_runner
from sleeper.spark.data_source.open_table import cached_table_reader
from sleeper.table.handle import OpenedTable, TableHandle
from sleeper.table.spark import open_for_spark

if TYPE_CHECKING:  # an extra, and slow to import
    from pyspark.sql import SparkSession

_NO_WAIT = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionSummary:
    """What a run of compaction did.

    Attributes:
        plan: What was decided for each leaf.
        jobs: What became of each job, in the order they ran.
        pushed_down: References of split partitions that were moved to leaves before.
        released: Ids of jobs that had claimed files and did not end in time.
        transaction: The table's transaction number afterwards.
    """

    plan: CompactionPlan
    jobs: tuple[CompactionJobResult, ...]
    pushed_down: int
    released: tuple[str, ...]
    transaction: int

    @property
    def failed(self) -> tuple[CompactionJobResult, ...]:
        """Jobs that failed; their files are as they were."""
        return tuple(job for job in self.jobs if job.failure is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class GcSummary:
    """What a run of the garbage collector did.

    Attributes:
        deleted: Data files that were deleted, each with its sketch.
        failures: Why others could not be, by name.
        transaction: The table's transaction number afterwards.
    """

    deleted: tuple[str, ...]
    failures: dict[str, str]
    transaction: int


def plan_compaction(self: TableHandle, *, all_files: bool = False) -> CompactionPlan:
    """Return what `compact` would do now, leaf by leaf, with reasons; nothing is changed.

    References of split partitions, which `compact` moves to the leaves first, are not yet
    counted there.
    """
    opened = self._current()
    return plan_compactions(
        opened.store.refresh(),
        CompactionSettings.of(opened.properties.compaction),
        all_files=all_files,
        new_id=self._context.new_id,
    )


def compact(
    self: TableHandle,
    *,
    all_files: bool = False,
    workers: int = 1,
    spark: SparkSession | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> CompactionSummary:
    """Merge files, leaf by leaf, so that queries have fewer of them to read.

    References of partitions that were split go down to the leaves first. Each job is
    committed for itself: a run that is killed leaves what it has done, and files that no
    other run takes before `sleeper.table.compaction.job.lease.minutes` have passed.

    Memory is about 1 GiB for each job at once, and does not grow with the rows.

    Args:
        all_files: Merge what the strategy would leave as well.
        workers: Jobs at once, if there are so many: each in a process of its own, from two on.
        spark: A session, classic or Connect, whose workers run the jobs, one on each core, in the
            place of this machine; they must reach the instance by the same URL.
        progress: Called with how many jobs have ended, and of how many.

    Returns:
        What was done. Jobs that failed are told in it; the table is readable all the same.

    Raises:
        CommitContended, CommitUnknown, StorageFailed: try again.
        TableNotFound: the table was deleted.
        BadRequest: workers and a session are both given, or the instance is in memory and Spark
            cannot reach it.

    Source: rules CMP-1 to CMP-9, CMP-14, CMP-16.
    """
    opened = self._current()
    runner = _runner(self, opened, workers, spark)
    store = opened.store
    lease = timedelta(minutes=opened.properties.compaction.lease_minutes)
    released = release_expired_jobs(store.time() - lease, store=store)
    pushed = _push_down(opened, self.schema)
    created = create_compaction_jobs(
        CompactionSettings.of(opened.properties.compaction),
        all_files=all_files,
        store=store,
        new_id=self._context.new_id,
    )
    return CompactionSummary(
        plan=created.plan,
        jobs=_run_jobs(opened, created.plan.jobs, runner, progress),
        pushed_down=pushed,
        released=tuple(sorted({claim.job_id for claim in released.claims})),
        transaction=store.state().number,
    )


def leaf_sizes(self: TableHandle) -> tuple[LeafSize, ...]:
    """Return the leaves that have rows, the largest first, with whether each is to be split."""
    opened = self._current()
    return plan_splits(opened.store.refresh(), opened.properties.splitting.threshold_rows)


def split_partitions(self: TableHandle) -> tuple[SplitResult, ...]:
    """Split leaves that have grown to `sleeper.table.partition.splitting.threshold` rows.

    Each is cut in two at the median of its keys. Files stay where they are and count for
    both halves: ingest, compaction and queries go on meanwhile.

    Returns:
        What became of each leaf that was large enough, the largest first.

    Raises:
        CommitContended, CommitUnknown, StorageFailed: try again.
        TableNotFound: the table was deleted.

    Source: rules SPL-1 to SPL-6.
    """
    opened = self._current()
    _push_down(opened, self.schema)
    return tuple(
        split_leaf(
            size.partition.partition_id,
            store=opened.store,
            files=opened.files,
            schema=self.schema,
            files_max=self._context.properties.splitting.sketch_files_max,
            new_id=self._context.new_id,
        )
        for size in leaf_sizes(self)
        if size.too_large
    )


def small_siblings(
    self: TableHandle, *, rows_below: int | None = None
) -> tuple[SiblingLeaves, ...]:
    """Return the pairs of leaves that `merge_partitions` would begin with; nothing is changed.

    Args:
        rows_below: As for `merge_partitions`.
    """
    opened = self._current()
    threshold = _merging_threshold(opened.properties, rows_below)
    return plan_merges(opened.store.refresh(), threshold)


def merge_partitions(
    self: TableHandle, *, rows_below: int | None = None
) -> tuple[MergeResult, ...]:
    """Merge leaves that have become small, two and two, up the tree.

    Files stay where they are: ingest, compaction and queries go on meanwhile. Leaves that
    were made by split points and are empty still count as small.

    Args:
        rows_below: Leaves of one parent with fewer rows together are merged; without it,
            `sleeper.table.partition.merging.threshold`, which is 0 and merges none.

    Returns:
        What became of each pair, in the order of the tries.

    Raises:
        BadRequest: `rows_below` is more than the rows from which on a leaf is split.
        CommitContended, CommitUnknown, StorageFailed: try again.
        TableNotFound: the table was deleted.

    Source: ours; upstream only splits.
    """
    opened = self._current()
    threshold = _merging_threshold(opened.properties, rows_below)
    if threshold:
        _push_down(opened, self.schema)
    store = opened.store
    store.refresh()
    tried: dict[str, MergeResult] = {}
    more = True
    while more:
        pairs = plan_merges(store.state(), threshold)
        new = [pair for pair in pairs if pair.parent.partition_id not in tried]
        tried |= {pair.parent.partition_id: merge_leaves(pair, store=store) for pair in new}
        more = bool(new)
    return tuple(tried.values())


def orphans(self: TableHandle, *, force: bool = False) -> SweepResult:
    """Return the files that `sweep_orphans` would delete; nothing of the table is changed."""
    return _sweep(self, delete=False, force=force)


def sweep_orphans(self: TableHandle, *, force: bool = False) -> SweepResult:
    """Delete files that belong to nobody: left by jobs that were killed or refused.

    Only what is older than `sleeper.table.gc.orphan.age.minutes`, by the clock of the storage,
    and that no version of the table needs.

    Args:
        force: Delete orphans of any age. Jobs that are under way lose their files, and are
            refused when they commit.

    Raises:
        ClockTooFarAhead: this machine's clock is wrong; nothing was deleted.
        StorageFailed: the storage cannot be listed. Deletions that fail are in the result.
        TableNotFound: the table was deleted.
    """
    return _sweep(self, delete=True, force=force)


def garbage(self: TableHandle, *, force: bool = False) -> Sequence[str]:
    """Return the files that `collect_garbage` would delete; nothing of the table is changed."""
    opened = self._current()
    files_max = self._context.properties.gc.files_max
    before = _NO_WAIT if force else _garbage_time(opened)
    return plan_garbage(opened.store.refresh(), before, files_max=files_max)


def collect_garbage(
    self: TableHandle,
    *,
    force: bool = False,
    progress: Callable[[int], None] = lambda deleted: None,
) -> GcSummary:
    """Delete files that nothing has referenced for `sleeper.table.gc.delay.minutes`.

    The delay must be longer than any query takes: a query reads the files of the state that
    it began with. Versions from before then can no longer be read by `as_of`.

    Args:
        force: Do not wait. Only while nobody reads the table: a query would lose its files.
        progress: Called with how many files are deleted, now and then.

    Raises:
        ClockTooFarAhead: this machine's clock is wrong; nothing was deleted.
        CommitContended, CommitUnknown, StorageFailed: try again.
        TableNotFound: the table was deleted.

    Source: rules GC-1 to GC-5.
    """
    opened = self._current()
    before = _NO_WAIT if force else _garbage_time(opened)
    deleted: list[str] = []
    failures: dict[str, str] = {}
    limits = self._context.properties.gc
    after, more = "", True
    while more:
        batch = collect_batch(
            before,
            after=after,
            files_max=limits.batch_files,
            store=opened.store,
            files=opened.files,
        )
        deleted += batch.deleted
        failures |= batch.failures
        after, more = batch.after, batch.more and len(deleted) < limits.files_max
        progress(len(deleted))
    return GcSummary(deleted=tuple(deleted), failures=failures, transaction=batch.transaction)


def _push_down(opened: OpenedTable, schema: Schema) -> int:
    moved, more = 0, True
    while more:
        run = push_down_references(store=opened.store, files=opened.files, schema=schema)
        moved, more = moved + run.moved, run.more
    return moved


def _runner(
    self: TableHandle, opened: OpenedTable, workers: int, spark: SparkSession | None
) -> tuple[Callable[[], TableReader], Runner]:
    """Return what opens the table where jobs run, and what runs them."""
    if spark is None:
        # The readers of this process, or new ones in each worker process.
        reading = (lambda: opened.reader) if workers == 1 else opened.open_reader
        return reading, partial(run_pieces, workers=workers)
    if workers != 1:
        raise BadRequest(
            f"workers={workers} asks for processes of this machine, and spark= for Spark's: leave "
            "one of them out"
        )
    files = open_for_spark(self).table_files
    title = f"sleeper: compact {self.name}"
    return partial(cached_table_reader, files), compaction_runner(spark, files.files, title=title)


def _run_jobs(
    opened: OpenedTable,
    jobs: Sequence[CompactionJob],
    runner: tuple[Callable[[], TableReader], Runner],
    progress: Callable[[int, int], None],
) -> tuple[CompactionJobResult, ...]:
    reading, run = runner
    write = partial(
        write_output,
        reading=reading,
        files=opened.files,
        settings=write_settings(opened.properties.parquet),
    )
    ended: list[CompactionJobResult] = []
    results = run_compactions(
        jobs,
        store=opened.store,
        files=opened.files,
        write=write,
        run=run,
        orphan_age=timedelta(minutes=opened.properties.gc.orphan_age_minutes),
    )
    with closing(results):
        for result in results:
            ended.append(result)
            progress(len(ended), len(jobs))
    return tuple(ended)


def _sweep(self: TableHandle, *, delete: bool, force: bool) -> SweepResult:
    opened = self._current()
    age = timedelta() if force else timedelta(minutes=opened.properties.gc.orphan_age_minutes)
    result = sweep(age, delete=delete, store=opened.store, files=opened.files)
    self._undo_commit_if_deleted()
    return result


def _merging_threshold(properties: TableProperties, rows_below: int | None) -> int:
    known = properties.splitting
    threshold = known.merging_threshold_rows if rows_below is None else rows_below
    if threshold > known.threshold_rows:
        raise BadRequest(
            f"leaves of fewer than {threshold:,} rows cannot be merged: from "
            f"{known.threshold_rows:,} rows on a leaf is split "
            "(sleeper.table.partition.splitting.threshold). Choose a smaller number."
        )
    return threshold


def _garbage_time(opened: OpenedTable) -> datetime:
    """Return since when a file must be unreferenced to be deleted, by the storage's clock."""
    known = opened.properties.gc
    kept = max(known.delay_minutes, known.versions_kept_minutes)
    return opened.store.time() - timedelta(minutes=kept)
