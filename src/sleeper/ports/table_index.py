"""The index of tables: which tables an instance has."""

from __future__ import annotations

from typing import Protocol

from sleeper.model.tables import TableRecord


class TableIndex(Protocol):
    """Which tables an instance has, their names and properties. Every change is conditional."""

    def add(self, record: TableRecord) -> None:
        """Make a table known.

        Raises:
            TableAlreadyExists: the name (or the id) is taken.
        """
        ...

    def replace(self, before: TableRecord, after: TableRecord) -> None:
        """Change a table's record, only if it still is `before`. The ids are equal.

        Raises:
            TableChanged: the record is no longer `before`.
            TableAlreadyExists: the new name is taken by another table.
            TableNotFound: the table is gone.
        """
        ...

    def remove(self, table_id: str) -> None:
        """Forget a table.

        Raises:
            TableNotFound: there is no such table.
        """
        ...

    def by_name(self, name: str) -> TableRecord | None:
        """Return the table of this name, or None."""
        ...

    def by_id(self, table_id: str) -> TableRecord | None:
        """Return the table of this id, or None."""
        ...

    def all(self) -> tuple[TableRecord, ...]:
        """Return every table, ordered by name."""
        ...


class IndexCheckpoints(Protocol):
    """All tables after some entries of the index, so that whoever opens it reads few entries."""

    def newest(self) -> tuple[str, bytes] | None:
        """Return the name and the body of the newest checkpoint; None when there is none."""
        ...

    def save(self, number: int, body: bytes) -> None:
        """Save the checkpoint after entry `number`; a failure is logged and not raised."""
        ...
