"""Finds orphans, which are objects that no transaction names, and deletes them (decision 0032)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import islice
from logging import getLogger

from sleeper.notebook_html import NotebookHtml
from sleeper.ports.objects import ObjectInfo, Objects
from sleeper.state.plans.garbage import orphans_of
from sleeper.state.state_store import StateStore, SweepLimits
from sleeper.state.transactions.files import SweepOrphans
from sleeper.storage.deletion import delete_groups

_BATCH = 1_000
_DATA = "data/"
# Maximum error of a file's time: some buckets store whole seconds, and writers estimate the
# storage's time from its last answer for some minutes.
_SLACK = timedelta(seconds=10)
_LOG = getLogger(__name__)


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


def sweep_orphans(
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
    while batch := {info.key: info for info in islice(listing, _BATCH)}:
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
