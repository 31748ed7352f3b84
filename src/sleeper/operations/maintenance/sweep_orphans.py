"""Finds files that belong to nobody and deletes them (decision 0032)."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice

from sleeper.errors import TableNotFound
from sleeper.model import paths
from sleeper.planning.orphans import orphans_of
from sleeper.ports.objects import ObjectInfo, Objects
from sleeper.state.state_store import StateStore
from sleeper.storage.deletion import delete_groups

_BATCH = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepResult:
    """What a sweep found.

    Attributes:
        orphans: Data files and sketches that belong to nobody, with sizes and times, by name.
        deleted: True when they were deleted, but for those in `failures`.
        failures: Why some could not be, by name.
    """

    orphans: tuple[ObjectInfo, ...]
    deleted: bool
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        """The size of all orphans together."""
        return sum(orphan.size_bytes for orphan in self.orphans)


def sweep_orphans(
    age: timedelta, *, delete: bool, store: StateStore, files: Objects
) -> SweepResult:
    """List the table's folder, compare it with the table's state, and delete what is left over.

    A file counts as old by the clock of the storage, whatever this machine's clock says. To ask
    for that time, an empty object `sweep.marker` is written.

    Args:
        age: How old an orphan must be: longer than any ingest, import or compaction takes. What
            such a job wrote longer ago than this would be deleted before it is committed.
        delete: False only looks.
        store: The table's state.
        files: The table's folder.

    Raises:
        TableNotFound: the table was deleted meanwhile.
        StorageFailed: the storage cannot be listed. Deletions that fail are told in the result.
    """
    before = _time_of(files) - age
    found: list[ObjectInfo] = []
    failures: dict[str, str] = {}
    listing = files.listing("data/")
    while batch := {info.key: info for info in islice(listing, _BATCH)}:
        stored = [(info.key, info.modified) for info in batch.values()]
        names = [*orphans_of(store.refresh(), stored, before)]
        found += [batch[name] for name in names]
        if delete:
            failures |= delete_groups({name: [name] for name in names}, files)
    return SweepResult(orphans=tuple(found), deleted=delete, failures=failures)


def _time_of(files: Objects) -> datetime:
    """What time it is where the files are."""
    files.put(paths.SWEEP_MARKER, b"")
    marker = next(files.listing(paths.SWEEP_MARKER), None)
    if marker is None:
        raise TableNotFound(f"{files.url(paths.SWEEP_MARKER)} is gone: the table was deleted")
    return marker.modified
