"""`Instance.sql`: runs one SQL statement about several tables."""

from __future__ import annotations

from typing import Final

from sleeper.engine.rows import Rows
from sleeper.engine.sql.statements import Statement
from sleeper.instance.handle import InstanceHandle
from sleeper.model.tables import TableRecord
from sleeper.tables.sql import named_in, planned_statement
from sleeper.tables.sql_method import scanned
from sleeper.tables.table import Table

_HANDLES_MAX: Final = 100


def sql(self: InstanceHandle, statement: str) -> Rows:
    """Run one SQL statement that reads tables of this instance, by their names.

    Each table is read at one transaction, the newest when the statement is planned. More is said
    at `Table.sql`, which reads one table.

    Args:
        statement: SELECT, WITH, VALUES, EXPLAIN or DESCRIBE, in the dialect of DataFusion.

    Returns:
        The rows, as a stream, in no order unless the statement says one. Their `transaction` is
        that of the table if there is only one, else 0.

    Raises:
        QueryInvalid: it does not only read, cannot be understood, or names an unknown table or
            column.
        DataDamaged: a file of a table is missing or wrong.
        StorageFailed: the temp folder is full, or the statement needs too much memory.
    """
    return planned(self, statement).rows()


def explain_sql(self: InstanceHandle, statement: str) -> str:
    """Return what a statement would do: DataFusion's plan, and what is read of each table.

    Raises:
        QueryInvalid: as by `sql`.
    """
    return planned(self, statement).explain()


def planned(self: InstanceHandle, statement: str) -> Statement:
    """Return a statement that is planned over the tables that it may name."""
    records = {record.name: record for record in self._context.index.all()}
    named = [records[name] for name in named_in(statement, [*records])]
    tables = {record.name: scanned(_handle(self, record)) for record in named}
    return planned_statement(
        statement, tables, names=[*records], temp_folder=self._context.temp_folder
    )


def _handle(self: InstanceHandle, record: TableRecord) -> Table:
    """Return the handle of a table that statements share: it keeps state and page indexes."""
    handles = self._sql_handles
    handle = handles.pop(record.table_id, None) or Table(record, self._context)
    handles[record.table_id] = handle
    while len(handles) > _HANDLES_MAX:
        handles.pop(next(iter(handles)), None)
    return handle
