"""Finds the version of a table that a caller names by a number or a time."""

from __future__ import annotations

from datetime import datetime

from sleeper.errors import VersionNotFound
from sleeper.state.state_store import StateStore
from sleeper.state.stores import kept_versions
from sleeper.state.table_state import TableState


def version_as_of(store: StateStore, as_of: int | datetime | None) -> TableState:
    """Return the state as of a transaction, or of the last one at or before a time.

    Args:
        store: The table's state.
        as_of: The transaction's number, an aware time, or None for the newest.

    Raises:
        VersionNotFound: there is no such transaction, or its files were deleted.
    """
    if as_of is None:
        return store.refresh()
    if as_of == 0:
        raise VersionNotFound("the table has no transaction 0; the first is 1")
    return store.at(as_of if isinstance(as_of, int) else number_of(store, as_of))


def number_of(store: StateStore, as_of: int | datetime, *, or_none: bool = False) -> int:
    """Return a transaction's number; of a time, the last transaction's at or before it.

    With `or_none`, 0 for a time before the first transaction of all.

    Raises:
        VersionNotFound: there is no such transaction, or no longer.
    """
    newest = store.refresh()
    if isinstance(as_of, datetime):
        return kept_versions.number_at(as_of, newest, store.time_of, or_none=or_none)
    if not 0 <= as_of <= newest.number:
        raise VersionNotFound(
            f"the table has no transaction {as_of}; the newest is {newest.number}"
        )
    return as_of


def kept(store: StateStore) -> kept_versions.KeptVersions:
    """Return which versions can be read."""
    newest = store.refresh()
    unkept = 0 if newest.moved is None else newest.moved.number - 1
    return kept_versions.first_kept(newest, store.state_after, unkept=unkept)
