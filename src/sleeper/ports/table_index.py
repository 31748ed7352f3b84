"""The interface of the table index: the tables of an instance."""

from __future__ import annotations

from typing import Protocol

from sleeper.model.tables import TableRecord


class TableIndex(Protocol):
    """The tables of an instance, with names and properties. Every change is conditional."""

    def add(self, record: TableRecord) -> None:
        """Add a table.

        Raises:
            TableAlreadyExists: the name (or the id) is taken.
        """
        ...

    def replace(self, before: TableRecord, after: TableRecord) -> None:
        """Change a table's record from `before` to `after`, which has the same id.

        Raises:
            TableChanged: the record is no longer `before`.
            TableAlreadyExists: the new name is taken by another table.
            TableNotFound: the table was deleted.
        """
        ...

    def remove(self, table_id: str) -> None:
        """Remove a table.

        Raises:
            TableNotFound: the table does not exist.
        """
        ...

    def by_name(self, name: str) -> TableRecord | None:
        """Return the table with this name, or None."""
        ...

    def known_by_name(self, name: str) -> TableRecord | None:
        """Return the table with this name as it was some time ago; None if that is unknown."""
        ...

    def by_id(self, table_id: str) -> TableRecord | None:
        """Return the table with this id, or None."""
        ...

    def all(self) -> tuple[TableRecord, ...]:
        """Return every table, ordered by name."""
        ...

    def edited_schema(self, record: TableRecord) -> str | None:
        """Return the name of the table's file for other programs, if it has another schema.

        Nothing here reads that file, so somebody who edited it waits in vain for the schema.
        """
        ...

    def faults(self) -> tuple[str, ...]:
        """Read the index in every form in which it is stored, and return what is wrong with it.

        Raises:
            StorageFailed: the storage did not answer.
        """
        ...


class IndexCheckpoints(Protocol):
    """Checkpoints of the index: all tables after some entry, so that a reader reads few entries."""

    def newest(self, *, with_copy: bool = True) -> tuple[str, bytes] | None:
        """Return the name and the body of a recent checkpoint; None if there is none.

        Args:
            with_copy: Whether it may be the copy of the newest tables.
        """
        ...

    def save(self, number: int, body: bytes) -> None:
        """Save the checkpoint after entry `number`; a failure is logged and not raised."""
        ...

    @property
    def keeps_newest(self) -> bool:
        """Whether it keeps a copy of the newest tables: where a listing costs a request."""
        ...

    def save_newest(self, body: bytes) -> None:
        """Keep a checkpoint in place of the last such copy; a failure is logged and not raised."""
        ...
