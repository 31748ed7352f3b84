"""Deletes stored files that nothing needs: garbage, and orphans.

Garbage are files that no partition references any longer (rules GC-1 to GC-5):

    1. the log tells which files lost their last reference long enough ago, and no kept version
       needs
    2. they are deleted batch by batch with their sketches, here or in tasks of Spark; each batch
       has a commit that removes them from the state

Orphans are files that no transaction names, left by killed or refused jobs (decision 0032):

    1. the table's folder is listed, and compared with the state
    2. a transaction forbids adding files of that age, so a job that commits too late is refused
    3. what no transaction names is deleted
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from logging import getLogger
from typing import TYPE_CHECKING, Final

from sleeper.errors import CommitRefused, ObjectNotFound
from sleeper.html.values import NotebookHtml
from sleeper.ports.objects import ObjectInfo, Objects
from sleeper.state.plans.garbage import collectable, orphans_of
from sleeper.state.state_store import StateStore, SweepLimits
from sleeper.state.table_state import TableState
from sleeper.state.transactions.files import DeleteFiles, SweepOrphans
from sleeper.storage.deletion import delete_data_files, delete_groups
from sleeper.tables.on_spark import batches_of, files_for_spark, run_batches
from sleeper.tables.open_table import OpenTable
from sleeper.tables.publications import ReadersNeeds, forget_ended, needs_of_readers

if TYPE_CHECKING:  # an extra, and slow to import
    from pyspark.sql import SparkSession

_NO_WAIT: Final = datetime.max.replace(tzinfo=UTC)
_LISTED_AT_ONCE: Final = 1_000
_DELETED_BY_A_TASK: Final = 2_000
_DATA: Final = "data/"
_SLACK: Final = timedelta(seconds=10)
"""Maximum error of a file's time: some buckets store whole seconds, and writers estimate the
storage's time from its last answer for some minutes."""
_LOG = getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class GcSummary(NotebookHtml):
    """The result of a run of the garbage collector.

    Attributes:
        deleted: Data files that were deleted, each with its sketch.
        failures: Why other files could not be deleted, by name; they stay in the state.
        transaction: The table's transaction number afterwards.
    """

    deleted: tuple[str, ...]
    failures: dict[str, str]
    transaction: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepResult(NotebookHtml):
    """The result of a sweep.

    Attributes:
        orphans: Data files, sketches and parts of the table's state that no transaction names, or
            that are too old, with sizes and times, by name.
        deleted: True if they were deleted, except those in `failures`.
        failures: Why some could not be deleted, by name.
    """

    orphans: tuple[ObjectInfo, ...]
    deleted: bool
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def gone(self) -> int:
        """How many data files and sketches were deleted, or would be."""
        return sum(1 for name in self._done() if name.startswith(_DATA))

    @property
    def gone_states(self) -> int:
        """How many parts of old states were deleted, or would be."""
        return sum(1 for name in self._done() if not name.startswith(_DATA))

    def _done(self) -> Iterator[str]:
        return (each.key for each in self.orphans if each.key not in self.failures)

    @property
    def size_bytes(self) -> int:
        """The size of all orphans together."""
        return sum(orphan.size_bytes for orphan in self.orphans)


def garbage(table: OpenTable, *, force: bool) -> Sequence[str]:
    """Return the files that `collect_garbage` would delete (`Table.garbage`)."""
    files_max = table.context.properties.gc.files_max
    wanted = _wanted(table, _NO_WAIT if force else _before(table))
    return _collectable(table.store.refresh(), wanted, files_max=files_max)


def collect_garbage(
    table: OpenTable,
    *,
    force: bool,
    spark: SparkSession | None,
    progress: Callable[[int], None],
) -> GcSummary:
    """Delete files that no partition has referenced for a while (`Table.collect_garbage`)."""
    there = None if spark is None else files_for_spark(table)
    limits = table.context.properties.gc
    wanted = _wanted(table, _NO_WAIT if force else _before(table))
    if spark is not None and there is not None:
        run = _collect_by_spark(table, wanted, spark, there, progress)
    else:
        run = _collect(
            wanted,
            batch_files=limits.batch_files,
            files_max=limits.files_max,
            store=table.store,
            files=table.files,
            progress=progress,
        )
    forget_ended(table.files, wanted.needs)
    return run


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Which garbage is deleted: what lost its last reference before a time, but what readers need.

    Attributes:
        before: The time.
        needs: What readers of published versions need.
    """

    before: datetime
    needs: ReadersNeeds


def _wanted(table: OpenTable, before: datetime) -> _Wanted:
    """Return which garbage is deleted: without delay, too, readers elsewhere keep their files."""
    if next(table.store.refresh().files.unreferenced(), None) is None:
        return _Wanted(before, ReadersNeeds())
    needs = needs_of_readers(table)
    return _Wanted(needs.limited(before), needs)


def sweep_orphans(table: OpenTable, *, delete: bool, force: bool) -> SweepResult:
    """Find orphans, and delete them if `delete` (`Table.orphans`, `Table.sweep_orphans`)."""
    gc = table.properties.gc
    versions_minutes = max(gc.revisions_kept_minutes, gc.versions_kept_minutes)
    result = sweep(
        timedelta() if force else table.orphan_age(),
        delete=delete,
        store=table.store,
        files=table.files,
        versions_min=gc.revisions_kept_min,
        versions_age=timedelta(minutes=versions_minutes),
    )
    table.undo_commit_if_deleted()
    return result


def _before(table: OpenTable) -> datetime:
    """Return the time before which a file must have lost its last reference to be deleted."""
    gc = table.properties.gc
    kept = max(gc.delay_minutes, gc.versions_kept_minutes)
    kept_since = table.store.time() - timedelta(minutes=kept)
    return garbage_time(kept_since, store=table.store)


def garbage_time(kept_since: datetime, *, store: StateStore) -> datetime:
    """Return the time before which files must have lost their last reference to be deleted.

    Versions that were the newest one at `kept_since` or later keep their files. The date of an
    entry does not say until when the version before it was the newest one, as its writer may have
    been stopped before it stored the entry; so the log is asked, if there is garbage at all.

    Args:
        kept_since: Readers who began before this time have ended.
        store: The table's state.

    Raises:
        StorageFailed: the state or its log cannot be read.
    """
    if not any(True for _ in collectable([store.refresh()], kept_since)):
        return kept_since
    return store.dates_stored_before(kept_since)


def _collectable(
    state: TableState, wanted: _Wanted, *, after: str = "", files_max: int
) -> Sequence[str]:
    """Return files that are unreferenced since before a time, by name, past `after`.

    Source: rule GC-1.
    """
    kept = wanted.needs.names
    found = collectable([state], wanted.before)
    names = (name for name in found if name > after and name not in kept)
    return [*islice(names, files_max)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    """The result of one batch; `after` is its last file."""

    deleted: Sequence[str]
    failures: dict[str, str]
    transaction: int
    after: str
    more: bool


def _collect(
    wanted: _Wanted,
    *,
    batch_files: int,
    files_max: int,
    store: StateStore,
    files: Objects,
    progress: Callable[[int], None],
) -> GcSummary:
    """Delete garbage with its sketches, batch by batch, each with a commit.

    Args:
        wanted: Which files are deleted: the time is by `garbage_time`.
        batch_files: Maximum number of files of a batch; fewer if the store takes fewer at once.
        files_max: No further batch begins after so many deletions.
        store: The table's state.
        files: The table's folder.
        progress: Called after each batch with the number of deleted files.

    Raises:
        CommitContended, CommitUnknown: try again.
        StorageFailed: the state cannot be read or changed. Failed deletions are in `failures`.
    """
    deleted: list[str] = []
    failures: dict[str, str] = {}
    if store.changes_max is not None:
        batch_files = min(batch_files, store.changes_max)
    after, more = "", True
    while more:
        batch = _collect_batch(wanted, after, batch_files, store, files)
        deleted += batch.deleted
        failures |= batch.failures
        after, more = batch.after, batch.more and len(deleted) < files_max
        progress(len(deleted))
    return GcSummary(deleted=tuple(deleted), failures=failures, transaction=batch.transaction)


def _collect_batch(
    wanted: _Wanted, after: str, files_max: int, store: StateStore, files: Objects
) -> _Batch:
    """Delete one batch of files after a name, then remove them from the state.

    If the process is killed in between, the next run completes the work: a file that does not
    exist counts as deleted (GC-2, GC-5). An unreferenced file is never referenced again.
    """
    state = store.refresh()
    names = _collectable(state, wanted, after=after, files_max=files_max)
    failures = delete_data_files(names, files)
    gone = [name for name in names if name not in failures]
    number = forget_files(gone, store) if gone else state.number
    for name in gone:
        _LOG.info("deleted %s, which nothing has referenced since before %s", name, wanted.before)
    return _Batch(
        deleted=gone,
        failures=failures,
        transaction=number,
        after=names[-1] if names else after,
        more=len(names) == files_max,
    )


def _collect_by_spark(
    table: OpenTable,
    wanted: _Wanted,
    spark: SparkSession,
    there: Objects,
    progress: Callable[[int], None],
) -> GcSummary:
    """Delete garbage in tasks of Spark; batches that were deleted are removed from the state here.

    If the process is killed in between, the next run completes the work, as in `_collect_batch`.
    """
    store, limits = table.store, table.context.properties.gc
    state = store.refresh()
    names = _collectable(state, wanted, files_max=limits.files_max)
    most = min(limits.batch_files, store.changes_max or limits.batch_files)
    batches = batches_of(names, lambda _: 1, min(_DELETED_BY_A_TASK, most))
    run = partial(delete_data_files, objects=there)
    title = f"sleeper: delete garbage of {table.name}, files"
    deleted: list[str] = []
    failures: dict[str, str] = {}
    number = state.number
    for batch, reasons in run_batches(spark, batches, run, title=title):
        failed = reasons | _still_there((name for name in batch if name not in reasons), there)
        gone = [name for name in batch if name not in failed]
        number = forget_files(gone, store) if gone else number
        for name in gone:
            before = wanted.before
            _LOG.info("deleted %s, which nothing has referenced since before %s", name, before)
        deleted += gone
        failures |= failed
        progress(len(deleted))
    return GcSummary(deleted=tuple(sorted(deleted)), failures=failures, transaction=number)


def _still_there(names: Iterable[str], files: Objects) -> dict[str, str]:
    """Return why files that workers deleted are still there: they may have disks of their own."""
    if files.is_remote:  # a bucket is one for all
        return {}
    found = {}
    for name in names:
        try:
            files.size(name)
        except ObjectNotFound:
            continue
        found[name] = (
            "Spark's workers do not reach it: use an object store, a shared file system, or local "
            "mode"
        )
    return found


def forget_files(names: Sequence[str], store: StateStore) -> int:
    """Remove files from the state, except those that other collectors remove first."""
    left = list(names)
    while left:
        try:
            return store.commit(DeleteFiles(filenames=tuple(left))).number
        except CommitRefused as refusal:
            _LOG.info("another collector has already removed some of the files: %s", refusal)
            state = store.refresh()
            still = [name for name in left if state.files.is_tracked(name)]
            if still == left:
                raise
            left = still
    return store.state().number


def sweep(
    age: timedelta,
    *,
    delete: bool,
    store: StateStore,
    files: Objects,
    versions_min: int = 1,
    versions_age: timedelta = timedelta(),
) -> SweepResult:
    """List the table's folder, compare it with the table's state, and delete orphans.

    Old states are deleted too, where the table's store keeps whole ones.

    The age of a file is measured by the clock of the storage. Before the first deletion, a
    transaction forbids adding files of that age. So a job that commits too late is refused,
    and no acknowledged row is lost.

    Args:
        age: How old an orphan must be: longer than any ingest, import or compaction takes.
        delete: False to only find orphans.
        store: The table's state.
        files: The table's folder.
        versions_min: How many of the last states are kept.
        versions_age: States that were the newest within this time are kept too.

    Raises:
        ClockTooFarAhead: this machine's clock is wrong; nothing was deleted.
        StorageFailed: the storage cannot be listed. Deletions that fail are in the result.
    """
    now = store.time()
    before = now - age
    found: list[ObjectInfo] = []
    failures: dict[str, str] = {}
    listing = files.listing(_DATA)
    while batch := {info.key: info for info in islice(listing, _LISTED_AT_ONCE)}:
        stored = [(info.key, info.modified) for info in batch.values()]
        names = [*orphans_of(store.refresh(), stored, before)]
        if delete and names:
            store.commit(SweepOrphans(before=before + _SLACK))
            names = [*orphans_of(store.refresh(), stored, before)]
        found += [batch[name] for name in names]
        if delete:
            failures |= delete_groups({name: [name] for name in names}, files)
            for name in names:
                _LOG.info("deleted %s, which no commit names", name)
    limits = SweepLimits(
        versions_min=versions_min, kept_since=now - versions_age, orphans_before=before
    )
    states = store.sweep(limits, delete=delete)
    return SweepResult(
        orphans=(*found, *states.objects),
        deleted=delete,
        failures={**failures, **states.failures},
    )
