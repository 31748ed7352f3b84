"""Deletes files that no partition references any longer (rules GC-1 to GC-5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from logging import getLogger

from sleeper.errors import CommitRefused
from sleeper.notebook_html import NotebookHtml
from sleeper.ports.objects import Objects
from sleeper.state.plans.garbage import collectable
from sleeper.state.state_store import StateStore
from sleeper.state.table_state import TableState
from sleeper.state.transactions.files import DeleteFiles
from sleeper.storage.deletion import delete_data_files

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
class _Batch:
    """The result of one batch; `after` is its last file."""

    deleted: Sequence[str]
    failures: dict[str, str]
    transaction: int
    after: str
    more: bool


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


def garbage(
    state: TableState, before: datetime, *, after: str = "", files_max: int
) -> Sequence[str]:
    """Return files that are unreferenced since before a time, by name, past `after`.

    Source: rule GC-1.
    """
    names = (name for name in collectable([state], before) if name > after)
    return [*islice(names, files_max)]


def collect_garbage(
    before: datetime,
    *,
    batch_files: int,
    files_max: int,
    store: StateStore,
    files: Objects,
    progress: Callable[[int], None],
) -> GcSummary:
    """Delete garbage with its sketches, batch by batch, each with a commit.

    Args:
        before: Files that lost their last reference before this time are deleted: by
            `garbage_time`.
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
        batch = _collect_batch(before, after, batch_files, store, files)
        deleted += batch.deleted
        failures |= batch.failures
        after, more = batch.after, batch.more and len(deleted) < files_max
        progress(len(deleted))
    return GcSummary(deleted=tuple(deleted), failures=failures, transaction=batch.transaction)


def _collect_batch(
    before: datetime, after: str, files_max: int, store: StateStore, files: Objects
) -> _Batch:
    """Delete one batch of files after a name, then remove them from the state.

    If the process is killed in between, the next run completes the work: a file that does not
    exist counts as deleted (GC-2, GC-5). An unreferenced file is never referenced again.
    """
    state = store.refresh()
    names = garbage(state, before, after=after, files_max=files_max)
    failures = delete_data_files(names, files)
    gone = [name for name in names if name not in failures]
    number = _forget(gone, store) if gone else state.number
    for name in gone:
        _LOG.info("deleted %s, which nothing has referenced since before %s", name, before)
    return _Batch(
        deleted=gone,
        failures=failures,
        transaction=number,
        after=names[-1] if names else after,
        more=len(names) == files_max,
    )


def _forget(names: Sequence[str], store: StateStore) -> int:
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
