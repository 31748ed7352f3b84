"""Reads the rows that ingests added between two versions of a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa

from sleeper.engine.read_leaves import TableReader, read_leaves
from sleeper.engine.rows import Rows
from sleeper.errors import DataDamaged, QueryInvalid, VersionNotFound
from sleeper.model.processing import Processing
from sleeper.model.queries import LeafQuery, checked_columns
from sleeper.model.ranges import whole_region
from sleeper.ports.objects import Objects
from sleeper.state.state_store import StateStore
from sleeper.state.transactions.change_feed import AddedFile, added_between
from sleeper.tables.history import log_of


def added_rows(
    reading: TableReader,
    store: StateStore,
    before: int,
    after: int,
    columns: Sequence[str] | None,
    *,
    now_ms: int,
) -> Rows:
    """Return the rows of the files that transactions after `before`, up to `after`, added.

    Files that compactions wrote are left out: their rows were in the table before. Rows are in key
    order, as they were added: filtered, but not aggregated.

    Raises:
        QueryInvalid: `before` is later than `after`, or a column is unknown.
        BadRequest: the state store keeps no log.
        VersionNotFound: some of the files were compacted, and deleted since.
    """
    shown = [*checked_columns(reading.schema, columns)]
    if before > after:
        raise QueryInvalid(
            f"transaction {before} is not before {after}: exchange them to get the rows that were "
            "added between"
        )
    added = [*added_between(log_of(store), reading.schema, before, after)] if before < after else []
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
    return Rows(batches(), schema, transaction=after, known_count=known_count)


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
