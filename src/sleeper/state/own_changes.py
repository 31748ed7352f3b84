"""Which tables this process has changed, so that it always reads what it wrote.

A reader that may be some seconds old looks for newer states in storage only after that time. A
change by any handle of its process makes it look at its next read.
"""

from __future__ import annotations

from itertools import count
from typing import Final

from sleeper.model.tables import TableRecord
from sleeper.ports.table_index import TableIndex

_numbers: Final = count(1)
_last: Final[dict[tuple[str, str], int]] = {}


class OwnChanges:
    """Counts the changes of a table, or of a table index, by all handles of this process.

    Args:
        url: The instance.
        table_id: The table; empty for the table index.
    """

    def __init__(self, url: str, table_id: str = "") -> None:
        self._place = (url, table_id)

    def note(self) -> None:
        """Count a change that was made, or may have been made."""
        _last[self._place] = next(_numbers)

    def last(self) -> int:
        """Return the number of the last change, which no other has; 0 before the first."""
        return _last.get(self._place, 0)


class NotedTableIndex:
    """A `TableIndex` that counts the changes of another one, also those that may have been made.

    Args:
        index: The other one.
        changes: Counts them.
    """

    def __init__(self, index: TableIndex, changes: OwnChanges) -> None:
        self._index = index
        self._changes = changes
        self.by_name = index.by_name
        self.known_by_name = index.known_by_name
        self.by_id = index.by_id
        self.all = index.all
        self.faults = index.faults

    def add(self, record: TableRecord) -> None:
        """Add a table."""
        try:
            self._index.add(record)
        finally:
            self._changes.note()

    def replace(self, before: TableRecord, after: TableRecord) -> None:
        """Change a table's record."""
        try:
            self._index.replace(before, after)
        finally:
            self._changes.note()

    def remove(self, table_id: str) -> None:
        """Remove a table."""
        try:
            self._index.remove(table_id)
        finally:
            self._changes.note()
