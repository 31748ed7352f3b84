"""Rows of one table that meet a condition written in SQL: `query(where=...)`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from sleeper.engine.rows import Rows
from sleeper.engine.scan.session import column
from sleeper.engine.sql.failures import shortened, translated
from sleeper.engine.sql.joined_lists import joins_lists
from sleeper.engine.sql.refusals import check_planned, check_written
from sleeper.engine.sql.scans.comparable_floats import ComparableRead, comparable_and_stored
from sleeper.engine.sql.scans.scanned_table import ScannedTable
from sleeper.engine.sql.session import SqlSession
from sleeper.engine.sql.statement_size import check_operators
from sleeper.errors import QueryInvalid


def rows_where(
    table: ScannedTable,
    where: str,
    columns: Sequence[str] | None,
    *,
    transaction: int,
    temp_folder: Path | None,
) -> Rows:
    """Return the rows that meet a condition, in the order in which they are read.

    The condition is checked now; rows are read during iteration.

    Args:
        table: The table.
        where: A condition in SQL over its columns, such as `n > 1 AND name LIKE 'a%'`.
        columns: The columns to return, all without it.
        transaction: The number of the state that is read.
        temp_folder: For DataFusion.

    Raises:
        QueryInvalid: it is not a condition, a column is unknown, or types do not fit.
    """
    what = f"where={shortened(where)!r}"
    if not isinstance(where, str):
        raise QueryInvalid(f"where must be a condition in SQL, such as 'n > 1', not {where!r}")
    check_operators(where)
    scanned, stored = comparable_and_stored(table)
    names = [*(table.arrow_schema.names if columns is None else columns)]
    with translated(what, table.arrow_schema.names):
        session, frame, plan = _planned(where, scanned, what, temp_folder)
        if joins_lists(where, frame, plan):
            session.close()
            session, frame, plan = _planned(where, scanned, what, temp_folder, joins_lists=False)
        try:
            direct = session.direct(plan)
            if direct is not None:
                session.close()
                as_stored = direct.stored if isinstance(direct, ComparableRead) else direct
                return as_stored.rows(columns)
            frame = frame.select(*[column(stored.get(name, name)) for name in names])
            physical = frame.execution_plan()
        except BaseException:
            session.close()
            raise
    schema = pa.schema([table.arrow_schema.field(name) for name in names])
    return Rows(session.batches(frame, physical, schema, what), schema, transaction)


def _planned(
    where: str,
    table: ScannedTable,
    what: str,
    temp_folder: Path | None,
    *,
    joins_lists: bool = True,
) -> tuple[SqlSession, Any, Any]:
    """Return a session, the rows of a table that meet a condition as a frame, and its plan."""
    tables = {table.name: table}
    session = SqlSession(tables, in_order=True, temp_folder=temp_folder, joins_lists=joins_lists)
    try:
        frame = session.view(table.name).filter(where)
        _refuse_subqueries(frame, what)
        check_written(where, frame, what)
        plan = session.plan(frame)
        check_planned(frame, plan, what)
    except BaseException:
        session.close()
        raise
    return session, frame, plan


def _refuse_subqueries(frame: Any, what: str) -> None:
    shown = frame.logical_plan().display_indent().splitlines()
    if any(line.strip() == "Subquery:" for line in shown):
        raise QueryInvalid(
            f"{what} has a query inside, and a condition is about the columns of one row: use "
            "Table.sql() or Instance.sql() (on the command line `sleeper sql`)"
        )
