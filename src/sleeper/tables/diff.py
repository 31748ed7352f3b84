"""Differences: reads the rows that ingests added between two versions of a table.

1. the log tells which files ingests added between them; files that compactions wrote are left
   out, because their rows were in the table before
2. the state tells whether these files are still there
3. they are read as they were added: filtered, but not aggregated, in key order
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime

import pyarrow as pa

from sleeper.engine.reading.read_leaves import read_leaves
from sleeper.engine.rows import Rows
from sleeper.errors import DataDamaged, QueryInvalid, VersionNotFound
from sleeper.model.processing import Processing
from sleeper.model.queries import LeafQuery, checked_as_of, checked_columns
from sleeper.model.ranges import whole_region
from sleeper.ports.objects import Objects
from sleeper.state.change_feed import AddedFile, added_between
from sleeper.state.state_store import StateStore
from sleeper.state.table_state import TableState
from sleeper.tables.history import log_of
from sleeper.tables.open_table import OpenTable
from sleeper.tables.versions import number_of


def diff(
    table: OpenTable,
    state: TableState,
    before: int | datetime,
    after: int | datetime | None,
    *,
    columns: Sequence[str] | None,
) -> Rows:
    """Return the rows that ingests added between two versions (`Table.diff`).

    Args:
        table: The table.
        state: Its newest state.
        before, after, columns: As for `Table.diff`.

    Raises:
        QueryInvalid: `before` is later than `after`, or a column is unknown.
        BadRequest: the state store keeps no log.
        VersionNotFound: some of the files were compacted, and deleted since.
    """
    earlier, later = checked_as_of(before, "before"), checked_as_of(after, "after")
    if earlier is None:
        raise QueryInvalid("before must be a transaction number or an aware datetime, not None")
    reading, store, now_ms = table.reader, table.store, table.now_ms()
    first = number_of(store, earlier, or_none=True)
    last = state.number if later is None else number_of(store, later)
    shown = [*checked_columns(reading.schema, columns)]
    if first > last:
        raise QueryInvalid(
            f"transaction {first} is not before {last}: exchange them to get the rows that were "
            "added between"
        )
    added = [*added_between(log_of(store), reading.schema, first, last)] if first < last else []
    _check_kept(added, store)
    whole = (whole_region(reading.schema),)
    leaves = [LeafQuery(each.filename, whole, (each.filename,)) for each in added]
    filtered = replace(reading, processing=Processing(filters=reading.processing.filters))

    def batches() -> Iterator[pa.RecordBatch]:
        with _deletions_reported(added, store, reading.files):
            yield from read_leaves(filtered, [leaves] if leaves else [], shown, now_ms=now_ms)

    def known_count() -> int | None:
        rows = sum(each.row_count for each in added)
        return rows if filtered.processing.is_identity else None

    schema = pa.schema([reading.arrow_schema.field(name) for name in shown])
    return Rows(batches(), schema, transaction=last, known_count=known_count)


def _check_kept(added: Sequence[AddedFile], store: StateStore) -> None:
    """Check that no file was deleted, as far as the newest state records it."""
    newest = store.refresh().files
    gone = [each for each in added if not newest.is_tracked(each.filename)]
    if gone:
        raise _deleted(gone, added)


@contextmanager
def _deletions_reported(
    added: Sequence[AddedFile], store: StateStore, files: Objects
) -> Iterator[None]:
    """Raise VersionNotFound instead of DataDamaged if a file was deleted while rows were read.

    The garbage collector deletes files before it records that they are gone.
    """
    try:
        yield
    except DataDamaged as damage:
        newest = store.refresh().files
        garbage = [each for each in added if not newest.references_to(each.filename)]
        there = {info.key for info in files.listing("data/")} if garbage else set()
        gone = [each for each in garbage if each.filename not in there]
        if gone:
            raise _deleted(gone, added) from damage
        raise


def _deleted(gone: Sequence[AddedFile], added: Sequence[AddedFile]) -> VersionNotFound:
    return VersionNotFound(
        f"{len(gone)} of the {len(added)} files that were added between these transactions were "
        f"compacted and then deleted, {gone[0].filename!r} of transaction {gone[0].number} among "
        f"them, so their rows cannot be told from others. Ask from transaction {gone[-1].number} "
        "on. To keep files for longer, set sleeper.table.versions.kept.minutes."
    )
