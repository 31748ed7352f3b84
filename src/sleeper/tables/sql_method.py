"""`Table.sql`: runs one SQL statement about a table."""

from __future__ import annotations

from datetime import datetime
from functools import partial

from sleeper.engine.rows import Rows
from sleeper.engine.sql.table_scan import ScannedTable
from sleeper.model.queries import checked_as_of
from sleeper.tables.handle import TableHandle
from sleeper.tables.query_method import answered_rows
from sleeper.tables.sql import explain_sql as explain
from sleeper.tables.sql import query_sql, scanned_lazily


def sql(self: TableHandle, statement: str, *, as_of: int | datetime | None = None) -> Rows:
    """Run one SQL statement that reads this table, by its name.

    Conditions on row keys narrow what is read: =, IN, BETWEEN, comparisons and LIKE 'prefix%',
    with AND, OR and NOT. Names are case-sensitive; those with signs are quoted: "my.table".
    Sorting, grouping and joining use at most 1 GiB of memory; grouping, and sorting of rows that
    meet a condition, spill to the temp folder.

    >>> import sleeper
    >>> instance = sleeper.connect("memory://")
    >>> schema = pa.schema([("id", pa.string()), ("n", pa.int64())])
    >>> table = instance.create_table("numbers", schema, row_keys=["id"])
    >>> table.ingest([{"id": "b", "n": 2}, {"id": "a", "n": 1}]).rows_written
    2
    >>> table.sql("SELECT sum(n) AS total FROM numbers WHERE id < 'c'").to_pylist()
    [{'total': 3}]

    Args:
        statement: SELECT, WITH, VALUES, EXPLAIN or DESCRIBE, in the dialect of DataFusion.
        as_of: A transaction number or an aware time, as for `query`.

    Returns:
        The rows, as a stream, in no order unless the statement says one. A column name that
        occurs twice gets a number: `id`, `id_1`.

    Raises:
        QueryInvalid: it does not only read, cannot be understood, or names an unknown column.
        VersionNotFound: there is no transaction `as_of`, or its files were deleted.
        DataDamaged: a file of the table is missing or wrong.
        StorageFailed: the temp folder is full, or the statement needs too much memory.
    """
    number = checked_as_of(as_of)
    read = partial(query_sql, statement=statement, name=self.name)
    return answered_rows(self, partial(read, columns=None), as_of=number)


def explain_sql(self: TableHandle, statement: str) -> str:
    """Return what a statement would do: DataFusion's plan, and what is read of this table.

    Of the table it says how many leaves and files are read, and how many pages of these files, by
    their indexes. No row is read.

    Raises:
        QueryInvalid: as by `sql`.
    """
    now_ms = int(self._context.now().timestamp() * 1000)
    opened, state = self._newest()
    return explain(opened.reader, state, now_ms, statement=statement, name=self.name)


def scanned(self: TableHandle) -> ScannedTable:
    """Return this table for a statement about several; its state is read if a plan needs it."""
    now_ms = int(self._context.now().timestamp() * 1000)
    opened = self._current()
    return scanned_lazily(opened.record.name, opened.reader, opened.store.refresh, now_ms)
