"""`Table` methods of maintenance: splitting and merging of leaves, garbage, orphans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

from sleeper.state.plans.splits_and_merges import LeafSize, SiblingLeaves, merging_threshold
from sleeper.state.plans.splits_and_merges import leaf_sizes as plan_splits
from sleeper.state.plans.splits_and_merges import small_siblings as plan_merges
from sleeper.tables.garbage import GcSummary, garbage_time
from sleeper.tables.garbage import collect_garbage as collect
from sleeper.tables.garbage import garbage as plan_garbage
from sleeper.tables.handle import OpenedTable, TableHandle
from sleeper.tables.merge_leaves import MergeResult, merge_small_leaves
from sleeper.tables.orphans import SweepResult
from sleeper.tables.orphans import sweep_orphans as sweep
from sleeper.tables.push_down import push_down_references, pushed_down
from sleeper.tables.split_and_merge import SplitResult, sized_leaves, split_leaf

_NO_WAIT = datetime.max.replace(tzinfo=UTC)


def leaf_sizes(self: TableHandle) -> tuple[LeafSize, ...]:
    """Return the leaves that have rows, the largest first, and whether each will be split.

    References of split partitions are counted on the leaves to which they would be moved.
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
    """Split leaves of at least `sleeper.table.partition.splitting.threshold` rows.

    Each is cut in two at the median of its keys. No file is moved: files belong to both halves.
    Ingest, compaction and queries may run at the same time.

    Returns:
        The result of each leaf that was large enough, the largest first.

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
    """Return the pairs of leaves that `merge_partitions` would merge first; nothing is changed.

    Args:
        rows_below: As for `merge_partitions`.
    """
    opened = self._current()
    threshold = merging_threshold(opened.properties.splitting, rows_below)
    return plan_merges(opened.store.refresh(), threshold, opened.store.changes_max)


def merge_partitions(
    self: TableHandle, *, rows_below: int | None = None
) -> tuple[MergeResult, ...]:
    """Merge pairs of small leaves with the same parent, up the tree.

    No file is moved. Ingest, compaction and queries may run at the same time. Empty leaves that
    were made by split points are merged too.

    Args:
        rows_below: Leaves of one parent with fewer rows together are merged. Without it,
            `sleeper.table.partition.merging.threshold`; its default 0 merges none.

    Returns:
        The result of each pair, in the order in which they were tried.

    Raises:
        BadRequest: `rows_below` is more than the rows at which a leaf is split.
        CommitContended, CommitUnknown, StorageFailed: try again.
        TableNotFound: the table was deleted.

    Source: ours; upstream never merges leaves.
    """
    opened = self._current()
    threshold = merging_threshold(opened.properties.splitting, rows_below)
    if threshold:
        push_down_references(store=opened.store, files=opened.files, schema=self.schema)
    return merge_small_leaves(threshold, store=opened.store)


def orphans(self: TableHandle, *, force: bool = False) -> SweepResult:
    """Return the files that `sweep_orphans` would delete; nothing is changed."""
    return _sweep(self, delete=False, force=force)


def sweep_orphans(self: TableHandle, *, force: bool = False) -> SweepResult:
    """Delete orphans: files of killed or refused jobs, which no transaction names.

    Only files older than `sleeper.table.gc.orphan.age.minutes`, by the clock of the storage, are
    deleted.

    Args:
        force: Delete orphans of any age. Running jobs lose their files, and their commits are
            refused.

    Raises:
        ClockTooFarAhead: this machine's clock is wrong; nothing was deleted.
        StorageFailed: the storage cannot be listed. Deletions that fail are in the result.
        TableNotFound: the table was deleted.
    """
    return _sweep(self, delete=True, force=force)


def garbage(self: TableHandle, *, force: bool = False) -> Sequence[str]:
    """Return the files that `collect_garbage` would delete; nothing is changed."""
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
    """Delete files that no partition has referenced for `sleeper.table.gc.delay.minutes`.

    The delay must be longer than any query takes, because a query reads the files of the state
    that it began with. `as_of` can no longer read versions that need the deleted files.

    Args:
        force: Delete without delay. Use it only if nobody reads the table: a running query
            would lose its files.
        progress: Called after each batch with the number of deleted files.

    Raises:
        ClockTooFarAhead: this machine's clock is wrong; nothing was deleted.
        CommitContended, CommitUnknown, StorageFailed: try again.
        TableNotFound: the table was deleted.

    Source: rules GC-1 to GC-5.
    """
    opened = self._current()
    before = _NO_WAIT if force else _garbage_time(opened)
    limits = self._context.properties.gc
    return collect(
        before,
        batch_files=limits.batch_files,
        files_max=limits.files_max,
        store=opened.store,
        files=opened.files,
        progress=progress,
    )


def _sweep(self: TableHandle, *, delete: bool, force: bool) -> SweepResult:
    opened = self._current()
    kept = opened.properties.gc
    age = timedelta() if force else timedelta(minutes=kept.orphan_age_minutes)
    versions_minutes = max(kept.revisions_kept_minutes, kept.versions_kept_minutes)
    result = sweep(
        age,
        delete=delete,
        store=opened.store,
        files=opened.files,
        versions_min=kept.revisions_kept_min,
        versions_age=timedelta(minutes=versions_minutes),
    )
    self._undo_commit_if_deleted()
    return result


def _garbage_time(opened: OpenedTable) -> datetime:
    """Return the time before which a file must have lost its last reference to be deleted."""
    known = opened.properties.gc
    kept = max(known.delay_minutes, known.versions_kept_minutes)
    kept_since = opened.store.time() - timedelta(minutes=kept)
    return garbage_time(kept_since, store=opened.store)
