"""Old versions: finds the one that a caller names by a number or a time, and reads it.

The garbage collector deletes files, then commits that they are gone. In between, and for as long
as a collector that was killed has no successor, the state has versions whose files are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime

import pyarrow as pa

from sleeper.engine.rows import Rows
from sleeper.errors import DataDamaged, VersionNotFound
from sleeper.ports.objects import Objects
from sleeper.state import kept_versions
from sleeper.state.state_store import StateStore
from sleeper.state.table_state import TableState
from sleeper.tables.open_table import OpenTable
from sleeper.tables.purges.records import purged_up_to


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


def rows_as_of(
    table: OpenTable, as_of: int | datetime, answer: Callable[[OpenTable, TableState], Rows]
) -> Rows:
    """Return the answer to a question about an old version.

    Args:
        table: The table.
        as_of: The version, as for `version_as_of`.
        answer: Reads the version.

    Raises:
        VersionNotFound: there is no such version, or files of it were deleted; of a stream, while
            rows are read.
    """
    store, files = table.store, table.files
    try:
        version = version_as_of(store, as_of)
    except VersionNotFound as missing:
        if (purged := _purged(table, as_of)) is None:
            raise
        raise purged from missing
    with deletions_reported(version, store=store, files=files):
        rows = answer(table.as_of(version), version)
    if rows.in_memory:
        return rows

    def batches() -> Iterator[pa.RecordBatch]:
        with closing(rows), deletions_reported(version, store=store, files=files):
            yield from rows

    def count() -> int:
        with deletions_reported(version, store=store, files=files):
            return rows.count()

    return Rows(
        batches(), rows.schema, rows.transaction, counter=count, known_count=rows.known_count
    )


def _purged(table: OpenTable, as_of: int | datetime) -> VersionNotFound | None:
    """Return why a version is not there, if rows were purged since; else None."""
    first = purged_up_to(table.files)
    if not isinstance(as_of, int) or not 0 < as_of < first:
        return None
    return VersionNotFound(
        f"transaction {as_of} is not kept: rows were purged from the table since, and its versions "
        f"before {first} that had them ended. Ask for transaction {first} or a later one; "
        "`sleeper purge TABLE --list` and Table.purges() tell of it."
    )


@contextmanager
def deletions_reported(version: TableState, *, store: StateStore, files: Objects) -> Iterator[None]:
    """Raise VersionNotFound instead of DataDamaged if only old versions need a missing file.

    Only then the table's folder is listed.
    """
    try:
        yield
    except DataDamaged as damage:
        newest = store.refresh()
        needed = {*version.files.needed_besides(newest.files), *version.key_files()}
        if needed:
            needed -= {info.key for info in files.listing("data/")}
        if not needed:
            raise
        raise VersionNotFound(
            f"files of transaction {version.number} were deleted: the garbage collector has begun "
            f"to delete {min(needed)!r} and others, which no later version needs. Ask for a later "
            f"transaction, up to {newest.number}. To keep versions for longer, set "
            "sleeper.table.versions.kept.minutes."
        ) from damage
