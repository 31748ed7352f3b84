"""Ends the versions of a table that had purged rows: no state, entry or copy of one names a key.

1. the newest state is written whole, as a snapshot; it has no purged key any more
2. older snapshots are deleted, and the copy of a new state
3. keys are taken out of entries of format 2 up to the snapshot; an entry of format 1 that has one
   is replaced by one that says so, for its number must stay taken: a writer that was stopped for
   long would create it, and lose what it commits
4. a state store without a log deletes the states before the newest one
5. what the table's state has left behind in other state stores is deleted
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from sleeper.errors import BadRequest, DataDamaged
from sleeper.model import paths
from sleeper.model.known_properties.state_store import STATE_STORES
from sleeper.ports.objects import Objects
from sleeper.ports.transaction_log import TransactionLog
from sleeper.state.log_entry import KeyValue, emptied, format_of, keys_of, without_keys
from sleeper.state.moves import MoveNotes, StatePlace
from sleeper.state.state_store import SweepLimits
from sleeper.storage.transaction_log import TABLE_LOG, ObjectTransactionLog
from sleeper.tables.open_table import OpenTable
from sleeper.tables.purges.keys import PurgedKeys
from sleeper.tables.purges.turns import turn_of
from sleeper.tables.state_stores import store_at

_PASSES_MAX: Final = 5
_NOT_ENTRIES: Final = (ValueError, TypeError, LookupError, AttributeError)
_STATE: Final = (
    TABLE_LOG,
    *(f"statestore/{part}/" for part in ("snapshots", "files", "partitions", "jobs")),
)
"""What the state store keeps that a table was made with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedVersions:
    """What was done to old versions.

    Attributes:
        redacted: Entries out of which keys were taken.
        emptied: Entries that were replaced.
        deleted: Objects of old states that were deleted.
    """

    redacted: int = 0
    emptied: int = 0
    deleted: int = 0


def check_versions_end(table: OpenTable) -> None:
    """Check that the table's state store can do without its old entries.

    Raises:
        BadRequest: it cannot.
    """
    if table.store.log is not None and table.properties.state_store.endswith("NoSnapshots"):
        others = ", ".join(name for name in STATE_STORES if not name.endswith("NoSnapshots"))
        raise BadRequest(
            f"the state store of table {table.name!r} keeps no snapshots, so each reader needs all "
            "of its log, which names keys. Nothing was purged. Move the state to another one "
            f"first (`sleeper table migrate-state {table.name} --to ...`): {others}"
        )


def write_clean_state(table: OpenTable) -> int:
    """Write the newest state whole; return the number from which on versions can be read."""
    store = table.store
    store.write_snapshot()
    numbers = () if store.snapshots is None else store.snapshots.numbers()
    return numbers[-1] if numbers else store.refresh().number


def end_versions(table: OpenTable, keys: PurgedKeys, before: int, purge_id: str) -> EndedVersions:
    """End the versions before a transaction, whose state was written whole.

    It waits while another purge replaces entries of the table's log.

    Raises:
        CommitContended: this process stood still for so long that another took its turn.
        DataDamaged: an entry cannot be read.
        StorageFailed: something may be left.
    """
    store = table.store
    deleted = _delete_left_behind(table)
    if store.log is None:
        now = store.time()
        limits = SweepLimits(
            versions_min=1, kept_since=now, orphans_before=now - table.orphan_age()
        )
        return EndedVersions(deleted=deleted + len(store.sweep(limits, delete=True).objects))
    if store.snapshots is not None:
        deleted += store.snapshots.delete_before(before)
    first = 1 if table.properties.state_move is None else table.properties.state_move.number
    redacted = emptied_ = 0
    with turn_of(table, purge_id) as turn:
        for _ in range(_PASSES_MAX):  # a purge of an earlier version may have put keys back
            formats = _redacted(store.log, keys, first, before, turn.keep)
            emptied_ += formats.count(1)
            redacted += len(formats) - formats.count(1)
            if not formats:
                break
    return EndedVersions(redacted=redacted, emptied=emptied_, deleted=deleted)


def entries_with_keys(
    log: TransactionLog, keys: PurgedKeys, first: int
) -> Iterator[tuple[int, bytes, set[KeyValue]]]:
    """Yield the number of each entry from one on, the entry, and which values of keys it has.

    Args:
        log: The log.
        keys: The keys.
        first: The log's first entry.

    Raises:
        DataDamaged: one cannot be read.
    """
    values = keys.json_values()
    for number, body in log.read_after(first - 1):
        yield number, body, values & _keys_of(number, body)


def _redacted(
    log: TransactionLog, keys: PurgedKeys, first: int, last: int, keep_turn: Callable[[], None]
) -> list[int]:
    """Take keys out of entries; return the format of each entry that had one.

    The turn is kept for each entry that is read: others wait for it, or take it over.
    """
    formats = []
    for number, body, here in entries_with_keys(log, keys, first):
        if number > last:
            break
        keep_turn()
        if here:
            written_in = format_of(body)
            changed = without_keys(body, here) if written_in > 1 else emptied(body)
            log.replace(number, body, changed)
            formats.append(written_in)
    return formats


def _keys_of(number: int, body: bytes) -> set[KeyValue]:
    try:
        return keys_of(body)
    except _NOT_ENTRIES as error:
        raise DataDamaged(
            f"entry {number} of the transaction log cannot be read: {error}. Restore it from a "
            "copy of the table's state, and purge the same keys again"
        ) from error


# ---------------------------------------------------------------- other state stores


def _delete_left_behind(table: OpenTable) -> int:
    """Delete what other state stores have of the table, from before its state was moved."""
    here, state = table.properties.state_move, table.store.refresh()
    if state.moved != here:
        return 0  # a move is under way
    current, deleted = StatePlace(table.properties.state_store, here), 0
    for place in MoveNotes(table.files).places():
        if place == current or _may_succeed(place, state.number):
            continue
        store_at(table.record, table.context, place, is_new=True).delete()
        moved_by = 0 if here is None else here.number
        deleted += _delete_objects(table.files, place, moved_by)
    return deleted


def _may_succeed(place: StatePlace, number: int) -> bool:
    """Return whether a place has a copy of the newest state, which has no purged key any more.

    Somebody may be about to move the table there.
    """
    return place.move is not None and place.move.number > number


def _delete_objects(files: Objects, place: StatePlace, moved_by: int) -> int:
    """Delete what a state store has in the table's folder.

    Where a log of objects began, its last entry stays: it says to a late writer that the state was
    moved.
    """
    if place.move is not None:
        folder = f"{paths.moved_state(place.move.move_id)}/"
        old = [info.key for info in files.listing(folder)]
    else:
        last = ObjectTransactionLog(files).key(moved_by)
        listed = [info.key for each in _STATE for info in files.listing(each)]
        old = [key for key in listed if not (key.startswith(TABLE_LOG) and key >= last)]
    files.delete(old)
    return len(old)
