"""What keeps a table quick and small: compaction, splitting, garbage collection."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

from sleeper.engine.writing.data_file import write_settings
from sleeper.model.files import ClaimOwner
from sleeper.model.formats.compaction_job import CompactionJob
from sleeper.operations.maintenance.claim_jobs import ClaimSettings, JobClaims
from sleeper.operations.maintenance.collect_garbage import collect_garbage as collect_batch
from sleeper.operations.maintenance.collect_garbage import garbage as plan_garbage
from sleeper.operations.maintenance.compact import CompactionJobResult, write_output
from sleeper.operations.maintenance.compact import compact as run_compactions
from sleeper.operations.maintenance.merge_leaves import MergeResult, merge_small_leaves
from sleeper.operations.maintenance.push_down_references import push_down_references
from sleeper.operations.maintenance.release_jobs import (
    ReleaseResult,
    release_expired_jobs,
    release_jobs,
)
from sleeper.operations.maintenance.split_leaf import SplitResult, split_leaf
from sleeper.operations.maintenance.sweep_orphans import SweepResult
from sleeper.operations.maintenance.sweep_orphans import sweep_orphans as sweep
from sleeper.operations.maintenance.worker_processes import run_pieces
from sleeper.planning.compactions import CompactionPlan, CompactionSettings, plan_compactions
from sleeper.planning.leases import HeldClaim, held_claims
from sleeper.planning.merges import SiblingLeaves, merging_threshold
from sleeper.planning.merges import small_siblings as plan_merges
from sleeper.planning.splits import LeafSize
from sleeper.planning.splits import leaf_sizes as plan_splits
from sleeper.state.table_state import TableState
from sleeper.table.handle import OpenedTable, TableHandle

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
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> CompactionSummary:
    """Merge files, leaf by leaf, so that queries have fewer of them to read.

    References of partitions that were split go down to the leaves first. Each job is
    committed for itself. Files are claimed for a few jobs at a time, and claims are renewed
    while the jobs run. A run that is killed leaves what it has done, and a few claims: the next
    run takes them back after `sleeper.table.compaction.job.lease.minutes`, or `release_claims`.

    Memory is about 1 GiB for each job at once, and does not grow with the rows.

    Args:
        all_files: Merge what the strategy would leave as well, until each leaf has one file.
        workers: Jobs at once, if there are so many: each in a process of its own, from two on.
        progress: Called with how many jobs have ended, and of how many.

    Returns:
        What was done. Jobs that failed are told in it; the table is readable all the same.

    Raises:
        CommitContended, CommitUnknown, StorageFailed: try again.
        TableNotFound: the table was deleted.

    Source: rules CMP-1 to CMP-9, CMP-14, CMP-16.
    """
    opened = self._current()
    lease = _lease(opened)
    released = release_expired_jobs(lease, store=opened.store)
    moved = push_down_references(store=opened.store, files=opened.files, schema=self.schema).moved

    def plan(state: TableState) -> CompactionPlan:
        settings = CompactionSettings.of(opened.properties.compaction)
        return plan_compactions(state, settings, all_files=all_files, new_id=self._context.new_id)

    first = plan(opened.store.refresh())
    ended: list[CompactionJobResult] = []
    with JobClaims(opened.store, _claim_settings(self, lease, workers)) as claims:
        again = (lambda state: plan(state).jobs) if all_files else None
        for jobs in claims.rounds(first.jobs, again):
            with closing(_run_jobs(opened, jobs, workers)) as results:
                for result in results:
                    ended.append(result)
                    progress(len(ended), claims.planned)
    return CompactionSummary(
        plan=first,
        jobs=tuple(ended),
        pushed_down=moved,
        released=tuple(sorted({claim.job_id for claim in released.claims})),
        transaction=opened.store.state().number,
    )


def claims(self: TableHandle) -> tuple[HeldClaim, ...]:
    """Return the files that compaction jobs have claimed: by whom, and since when.

    A claim ends `sleeper.table.compaction.job.lease.minutes` after it was last renewed.
    """
    opened = self._current()
    state, now = opened.store.refresh(), self._context.now()
    return held_claims(state, _lease(opened), max(now, state.at or now))


def release_claims(self: TableHandle, job_id: str | None = None) -> ReleaseResult:
    """Release the files that compaction jobs have claimed, so that others may compact them.

    For claims of processes that have died; others work in vain, and are refused when they commit.
    Claims whose lease has ended are released by the next compaction in any case.

    Args:
        job_id: The job; without it, all jobs of the table.

    Raises:
        CommitContended, CommitUnknown, StorageFailed: try again.
        TableNotFound: the table was deleted.

    Source: ours; upstream's locks stay.
    """
    opened = self._current()
    return release_jobs(job_id, _lease(opened), store=opened.store)


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
    push_down_references(store=opened.store, files=opened.files, schema=self.schema)
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
    threshold = merging_threshold(opened.properties.splitting, rows_below)
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
    threshold = merging_threshold(opened.properties.splitting, rows_below)
    if threshold:
        push_down_references(store=opened.store, files=opened.files, schema=self.schema)
    return merge_small_leaves(threshold, store=opened.store)


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


def _lease(opened: OpenedTable) -> timedelta:
    return timedelta(minutes=opened.properties.compaction.lease_minutes)


def _claim_settings(self: TableHandle, lease: timedelta, workers: int) -> ClaimSettings:
    context = self._context
    owner = ClaimOwner(host=context.host, pid=os.getpid(), worker_id=context.new_id())
    return ClaimSettings(owner=owner, jobs_max=2 * workers, renew_every_s=lease.total_seconds() / 3)


def _run_jobs(
    opened: OpenedTable, jobs: Iterable[CompactionJob], workers: int
) -> Generator[CompactionJobResult, None, None]:
    write = partial(
        write_output,
        # The readers of this process, or new ones in each worker process.
        reading=(lambda: opened.reader) if workers == 1 else opened.open_reader,
        files=opened.files,
        settings=write_settings(opened.properties.parquet),
    )
    return run_compactions(
        jobs,
        store=opened.store,
        files=opened.files,
        write=write,
        run=partial(run_pieces, workers=workers),
        orphan_age=timedelta(minutes=opened.properties.gc.orphan_age_minutes),
    )


def _sweep(self: TableHandle, *, delete: bool, force: bool) -> SweepResult:
    opened = self._current()
    age = timedelta() if force else timedelta(minutes=opened.properties.gc.orphan_age_minutes)
    result = sweep(age, delete=delete, store=opened.store, files=opened.files)
    self._undo_commit_if_deleted()
    return result


def _garbage_time(opened: OpenedTable) -> datetime:
    """Return since when a file must be unreferenced to be deleted, by the storage's clock."""
    known = opened.properties.gc
    kept = max(known.delay_minutes, known.versions_kept_minutes)
    return opened.store.time() - timedelta(minutes=kept)
