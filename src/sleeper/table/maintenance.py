"""What keeps a table quick and small: compaction, splitting, garbage collection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sleeper.operations.maintenance.collect_garbage import collect_garbage as collect_batch
from sleeper.operations.maintenance.collect_garbage import garbage as plan_garbage
from sleeper.operations.maintenance.collect_garbage import garbage_time
from sleeper.operations.maintenance.merge_leaves import MergeResult, merge_small_leaves
from sleeper.operations.maintenance.push_down_references import push_down_references, pushed_down
from sleeper.operations.maintenance.split_leaf import SplitResult, sized_leaves, split_leaf
from sleeper.operations.maintenance.sweep_orphans import SweepResult
from sleeper.operations.maintenance.sweep_orphans import sweep_orphans as sweep
from sleeper.planning.partitions.merges import SiblingLeaves, merging_threshold
from sleeper.planning.partitions.merges import small_siblings as plan_merges
from sleeper.planning.partitions.splits import LeafSize
from sleeper.planning.partitions.splits import leaf_sizes as plan_splits
from sleeper.table.handle import OpenedTable, TableHandle

_NO_WAIT = datetime.max.replace(tzinfo=UTC)


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


def leaf_sizes(self: TableHandle) -> tuple[LeafSize, ...]:
    """Return the leaves that have rows, the largest first, with which `split_partitions` splits.

    References of partitions that were split count where `split_partitions` would move them.
    """
    opened = self._current()
    return sized_leaves(
        pushed_down(opened.store.refresh(), files=opened.files, schema=self.schema),
        opened.properties.splitting.threshold_rows,
        files=opened.files,
        schema=self.schema,
        files_max=self._context.properties.splitting.sketch_files_max,
    )


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
        for size in plan_splits(opened.store.state(), opened.properties.splitting.threshold_rows)
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
    kept_since = opened.store.time() - timedelta(minutes=kept)
    return garbage_time(kept_since, store=opened.store)
