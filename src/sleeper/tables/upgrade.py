"""Sets the format of a table: `upgrade` to format 2, and `downgrade` back while that can be.

1. one entry sets the format; data files and earlier entries stay as they are
2. to go back, the state is written whole, so that an earlier version need not read what it does not
   know

What format 2 has is in docs/format.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from sleeper.html.values import NotebookHtml
from sleeper.state.state_store import commit_planned
from sleeper.state.table_state import TableState
from sleeper.state.transactions.formats import SetFormat
from sleeper.tables.open_table import OpenTable


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatChange(NotebookHtml):
    """The format of a table, after it was set.

    Attributes:
        before: The format that it had.
        format: The format that it has.
        transaction: Its newest transaction: the one that set the format, if that changed.
    """

    before: int
    format: int
    transaction: int


def upgrade(table: OpenTable) -> FormatChange:
    """Give a table format 2 (`Table.upgrade`)."""
    try:
        return _set_format(table, 2)
    finally:
        table.undo_commit_if_deleted()


def downgrade(table: OpenTable) -> FormatChange:
    """Give a table format 1 (`Table.downgrade`)."""
    try:
        table.store.write_snapshot()  # refused, before anything is changed, by a store without any
        change = _set_format(table, 1)
        table.store.write_snapshot()
    finally:
        table.undo_commit_if_deleted()  # also of a snapshot, and says so whatever else failed
    return change


def _set_format(table: OpenTable, wanted: int) -> FormatChange:
    def plan(state: TableState) -> tuple[int, SetFormat | None]:
        return state.format, None if state.format == wanted else SetFormat(format=wanted)

    before, state = commit_planned(table.store, plan)
    return FormatChange(before=before, format=state.format, transaction=state.number)
