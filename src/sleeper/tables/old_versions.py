"""Tells readers of an old version that its files were deleted, where no commit says so yet.

The garbage collector deletes files, then commits that they are gone. In between, and for as long as
a collector that was killed has no successor, the state has versions whose files are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pyarrow as pa

from sleeper.engine.rows import Rows
from sleeper.errors import DataDamaged, VersionNotFound
from sleeper.ports.objects import Objects
from sleeper.state.state_store import StateStore
from sleeper.state.table_state import TableState


def read_version(
    answer: Callable[[], Rows], version: TableState, *, store: StateStore, files: Objects
) -> Rows:
    """Return the answer to a question about an old version.

    Args:
        answer: Reads the version.
        version: The state that it reads.
        store: The table's state.
        files: The table's folder.

    Raises:
        VersionNotFound: files of the version were deleted; of a stream, while rows are read.
    """
    with deletions_reported(version, store=store, files=files):
        rows = answer()
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


@contextmanager
def deletions_reported(version: TableState, *, store: StateStore, files: Objects) -> Iterator[None]:
    """Raise VersionNotFound instead of DataDamaged if only old versions need a missing file.

    Only then the table's folder is listed.
    """
    try:
        yield
    except DataDamaged as damage:
        newest = store.refresh()
        needed = set(version.files.needed_besides(newest.files))
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
