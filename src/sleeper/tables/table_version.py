"""One state of a table with what reads it, for verbs that read the same state several times."""

from __future__ import annotations

from dataclasses import dataclass

from sleeper.engine.reading.read_leaves import TableReader
from sleeper.state.table_state import TableState
from sleeper.tables.open_table import OpenTable


@dataclass(frozen=True, slots=True)
class TableVersion:
    """One state of a table, and what reads it.

    Attributes:
        name: The table's name.
        reading: The table's readers.
        state: The state.
        now_ms: The current time in milliseconds since 1970, for filters by age.
    """

    name: str
    reading: TableReader
    state: TableState
    now_ms: int

    @classmethod
    def newest(cls, table: OpenTable) -> TableVersion:
        """Return the newest state of a table."""
        now_ms = table.now_ms()
        return cls(table.name, table.reader, table.store.refresh(), now_ms)
