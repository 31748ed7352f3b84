"""SQL about several tables of an instance: finds the tables that a statement may name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from sleeper.engine.rows import Rows
from sleeper.engine.sql.statements import Statement
from sleeper.engine.sql.table_scan import ScannedTable
from sleeper.model.tables import TableRecord
from sleeper.tables import sql
from sleeper.tables.instance_context import InstanceContext
from sleeper.tables.open_table import TableHandle

_HANDLES_MAX: Final = 100


class StatementTable(TableHandle):
    """A table that statements of an instance share: it keeps state and page indexes."""

    def scanned(self) -> ScannedTable:
        """Return the table for a statement; its state is read if a plan needs it."""
        return sql.scanned_lazily(self._current())


def statement_rows(
    context: InstanceContext, handles: dict[str, StatementTable], statement: str
) -> Rows:
    """Return the rows of a statement over the tables that it may name.

    Args:
        context: The instance.
        handles: The tables that statements share, by their ids.
        statement: The statement.
    """
    return sql.statement_rows(statement, *_named_tables(context, handles, statement))


def planned_statement(
    context: InstanceContext, handles: dict[str, StatementTable], statement: str
) -> Statement:
    """Return such a statement with its plan; it reads nothing yet.

    Args: as `statement_rows`.
    """
    return sql.planned_statement(statement, *_named_tables(context, handles, statement))


def _named_tables(
    context: InstanceContext, handles: dict[str, StatementTable], statement: str
) -> tuple[Mapping[str, ScannedTable], Sequence[str], Path | None]:
    records = {record.name: record for record in context.index.all()}
    named = [records[name] for name in sql.named_in(statement, [*records])]
    tables = {each.name: _handle(context, handles, each).scanned() for each in named}
    return tables, [*records], context.temp_folder


def _handle(
    context: InstanceContext, handles: dict[str, StatementTable], record: TableRecord
) -> StatementTable:
    handle = handles.pop(record.table_id, None) or StatementTable(record, context)
    handles[record.table_id] = handle
    while len(handles) > _HANDLES_MAX:
        handles.pop(next(iter(handles)), None)
    return handle
