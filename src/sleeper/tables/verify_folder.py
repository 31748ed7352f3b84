"""Compares what is stored in a table's folder with its state: orphans, garbage. Deletes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Final

from sleeper.ports.objects import Objects
from sleeper.state.plans.garbage import orphans_of
from sleeper.state.state_store import StateStore

_BATCH: Final = 1_000
_EXAMPLES_MAX: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRest:
    """Files in a table's folder that no query reads. They are no faults.

    Attributes:
        orphans: How many data files and sketches no transaction names. Some may be of jobs that
            run now.
        orphan_bytes: Their size.
        orphans_due: How many of them a sweep would delete: those that are old enough.
        orphans_newer: How many of them were stored after the last transaction. If the last entry
            of the log was deleted, its files are among them.
        examples: The names of some orphans.
        garbage: How many files have lost their last reference, and are not yet deleted.
        garbage_due: How many of them the garbage collector would delete now.
    """

    orphans: int
    orphan_bytes: int
    orphans_due: int
    orphans_newer: int
    examples: tuple[str, ...]
    garbage: int
    garbage_due: int


def verify_folder(
    store: StateStore, *, files: Objects, orphans_before: datetime, garbage_before: datetime
) -> StoredRest:
    """List the data files of a table, and count those that its state does not reference.

    Args:
        store: The table's state.
        files: The table's folder.
        orphans_before: Orphans that were stored before this time are due.
        garbage_before: Garbage since before this time is due.

    Raises:
        StorageFailed: the storage cannot be listed.
    """
    orphans = size = due = newer = 0
    examples: list[str] = []
    listing = files.listing("data/")
    while batch := {info.key: info for info in islice(listing, _BATCH)}:
        stored = [(info.key, info.modified) for info in batch.values()]
        last = max(modified for _, modified in stored)
        state = store.refresh()
        for name in orphans_of(state, stored, datetime.max.replace(tzinfo=last.tzinfo)):
            orphans += 1
            size += batch[name].size_bytes
            due += batch[name].modified < orphans_before
            newer += state.at is not None and batch[name].modified > state.at
            if len(examples) < _EXAMPLES_MAX:
                examples.append(name)
    state = store.refresh()
    return StoredRest(
        orphans=orphans,
        orphan_bytes=size,
        orphans_due=due,
        orphans_newer=newer,
        examples=(*examples,),
        garbage=sum(1 for _ in state.files.unreferenced()),
        garbage_due=sum(1 for _ in state.unreferenced_before(garbage_before)),
    )
