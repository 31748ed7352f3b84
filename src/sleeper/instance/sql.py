"""`Instance.sql`: runs one SQL statement about several tables."""

from __future__ import annotations

from sleeper.engine.rows import Rows
from sleeper.engine.sql.statements import Statement
from sleeper.instance.handle import InstanceHandle
from sleeper.operations.reading.sql import named_in, planned_statement
from sleeper.table.rows.sql import scanned
from sleeper.table.table import Table


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


def planned(self: InstanceHandle, statement: str) -> Statement:
    """Return a statement that is planned over the tables that it may name."""
    records = {record.name: record for record in self._context.index.all()}
    tables = {
        name: scanned(Table(records[name], self._context))
        for name in named_in(statement, [*records])
    }
    return planned_statement(
        statement, tables, names=[*records], temp_folder=self._context.temp_folder
    )
