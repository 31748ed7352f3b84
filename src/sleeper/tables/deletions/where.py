"""Deletes the rows that meet a condition in SQL, whatever their keys (rule DEL-2).

1. leaves that have such rows are found: of each, rows are read up to the first one
2. these rows are written out of their leaves (`write_out`), and counted
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sleeper.engine.reading.regions import row_groups
from sleeper.engine.sql.as_written import called_function
from sleeper.errors import DataDamaged, FileReferenceNotFound, QueryInvalid
from sleeper.model.queries import NOT_GIVEN
from sleeper.model.ranges import Region
from sleeper.state.table_state import TableState
from sleeper.state.transactions.files import AddFiles
from sleeper.tables.deletions.regions import RowDeletion
from sleeper.tables.open_table import OpenTable
from sleeper.tables.read_rows import query_regions
from sleeper.tables.sql import query_where
from sleeper.tables.table_version import TableVersion
from sleeper.tables.unchanged_since import UnchangedSince, beside
from sleeper.tables.write_out import (
    CHUNK_ROWS,
    Staying,
    WrittenOut,
    until_undisturbed,
    write_out_beside,
)

_DRAWN: Final = ("random", "uuid")
"""Functions of SQL that give each row another value at each call."""


def delete_where(
    table: OpenTable,
    where: str,
    job: AddFiles | None = None,
    *,
    if_unchanged_since: int | None = None,
    **asked: object,
) -> RowDeletion:
    """Delete the rows that meet a condition (`Table.delete`).

    Raises:
        RowsChanged: a leaf that has such rows has changed since. Nothing was deleted.
        QueryInvalid: the condition does not fit the table, or something else is asked for beside.
        CommitTooLarge: the state store cannot replace as many files at once.
        CommitContended: others took the files in each attempt. Nothing was deleted.
    """
    others = [name for name, value in asked.items() if value is not NOT_GIVEN]
    if others:
        raise QueryInvalid(
            f"delete takes where= alone, and not {others[0]}= beside it: write conditions on keys "
            'into it, such as where="id = 5 AND day < 3"'
        )

    drawn = called_function(str(where), _DRAWN)  # what is no text is refused where it is asked
    if drawn is not None:
        raise QueryInvalid(
            f"{where!r} has {drawn}(), which gives another value each time: a condition must give "
            "the same each time. Nothing was deleted"
        )

    @contextmanager
    def divide(version: TableVersion, leaf: Region) -> Iterator[Staying]:
        # On lines of its own, for it may end with a comment.
        stays, columns = f"(\n{where}\n) IS NOT TRUE", table.arrow_schema.names
        kept = query_where(version, stays, regions=[leaf], columns=columns)
        with kept:
            yield Staying(row_groups(kept, CHUNK_ROWS), lambda n: _gone(version, where, leaf, n))

    condition = UnchangedSince.of(table, if_unchanged_since)

    def attempt() -> WrittenOut:
        state = table.store.refresh()
        leaves = _leaves_with_rows(table, state, where)
        regions = [state.partition(each).region for each in leaves]
        condition.check(state, regions)
        return write_out_beside(table, state, leaves, divide, beside(condition, regions, job))

    done = until_undisturbed(table, attempt)
    return RowDeletion(transaction=done.state.number, regions=0, rows=done.rows)


def _leaves_with_rows(table: OpenTable, state: TableState, where: str) -> list[str]:
    """Return the ids of the leaves that have a row which meets the condition."""
    version = TableVersion(table.name, table.reader, state, table.now_ms())
    key = table.schema.names[:1]
    found = []
    try:
        for leaf in state.leaf_partitions():
            rows = query_where(version, where, regions=[leaf.region], columns=key, ordered=False)
            with rows:
                if any(batch.num_rows for batch in rows):
                    found.append(leaf.partition_id)
    except DataDamaged as missing:
        if table.store.refresh().number == state.number:
            raise
        raise FileReferenceNotFound("the table was changed while it was read") from missing
    return found


def _gone(version: TableVersion, where: str, leaf: Region, kept: int) -> int:
    """Return how many rows of a leaf meet the condition.

    Raises:
        QueryInvalid: these and the rows that were kept are not all: it differs each time.
    """
    reading, key = version.reading, version.reading.schema.names[:1]
    gone = query_where(version, where, regions=[leaf], columns=key, ordered=False).count()
    rows = query_regions(reading, version.state, [leaf], key, version.now_ms).count()
    if kept + gone != rows:
        raise QueryInvalid(
            f"{where!r} was met by {gone:,} of {rows:,} rows of a leaf, and not met by {kept:,}. "
            "Nothing was deleted: a condition must give the same each time, so it cannot have "
            "random() or now()"
        )
    return gone
