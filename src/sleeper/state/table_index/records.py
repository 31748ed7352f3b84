"""All tables after an entry of the table index, and checks of changes to them."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field

from sleeper.errors import DataDamaged, TableAlreadyExists, TableChanged, TableNotFound
from sleeper.language.value_classes import dataclass
from sleeper.model.tables import TableRecord
from sleeper.state.table_index.entry_json import Change, decode_entry


@dataclass(frozen=True, slots=True)
class TableRecords:
    """All tables after one entry of the index. Immutable: folding entries makes a new value.

    Attributes:
        number: The last folded entry; 0 is before the first.
        by_id: The tables by id.
        by_name: The same tables by name.
    """

    number: int = 0
    by_id: Mapping[str, TableRecord] = field(default_factory=dict)
    by_name: Mapping[str, TableRecord] = field(default_factory=dict)

    @classmethod
    def of(cls, number: int, records: Iterable[TableRecord]) -> TableRecords:
        """Return `records` as the tables after entry `number`."""
        by_id = {record.table_id: record for record in records}
        return cls(number, by_id, {record.name: record for record in by_id.values()})

    def check_addable(self, record: TableRecord) -> None:
        """Check that no table has the name or the id of `record`.

        Raises:
            TableAlreadyExists: a table has it.
        """
        self._check_name_free(record)
        taken = self.by_id.get(record.table_id)
        if taken is not None:
            raise TableAlreadyExists(
                f"table {taken.name!r} has the id {record.table_id} already. Make a new id."
            )

    def check_replaceable(self, before: TableRecord, after: TableRecord) -> None:
        """Check that a table's record is `before`, and that the name of `after` is free.

        Raises:
            TableNotFound: the table was deleted.
            TableChanged: its record is different.
            TableAlreadyExists: another table has the new name.
        """
        current = self.by_id.get(before.table_id)
        if current is None:
            raise TableNotFound(
                f"table {before.name!r} (id {before.table_id}) does not exist: it was deleted "
                f"since it was read. {self._near(before.name)}"
            )
        if current != before:
            raise TableChanged(
                f"another writer changed table {before.name!r} since it was read: "
                f"{_differences(before, current)}. Read it again, then repeat the change."
            )
        self._check_name_free(after)

    def check_removable(self, table_id: str) -> None:
        """Check that there is a table with this id.

        Raises:
            TableNotFound: there is none.
        """
        if table_id not in self.by_id:
            raise TableNotFound(
                f"no table has the id {table_id!r}; it may be deleted already. "
                f"{self._near(table_id)}"
            )

    def _check_name_free(self, record: TableRecord) -> None:
        taken = self.by_name.get(record.name)
        if taken is not None and taken.table_id != record.table_id:
            raise TableAlreadyExists(
                f"there is a table {record.name!r} already (id {taken.table_id}). Choose another "
                "name, or use that table."
            )

    def _near(self, name: str) -> str:
        """Return a sentence with similar names of tables."""
        named = difflib.get_close_matches(name, self.by_name) or sorted(self.by_name)[:5]
        return f"Tables there are: {', '.join(map(repr, named))}." if named else "There are none."


def fold(
    records: TableRecords,
    entries: Iterable[tuple[int, bytes]],
    name_of: Callable[[int], str],
) -> TableRecords:
    """Return the tables after `entries`, as a log's `read_after` yields them.

    Args:
        records: The tables before them.
        entries: Numbers and bodies.
        name_of: Returns the name of an entry for errors.

    Raises:
        DataDamaged: an entry is missing or cannot be read.
        FormatTooNew: a newer Sleeper wrote one of them.
    """
    number = records.number
    by_id: dict[str, TableRecord] = {}
    for found, body in entries:
        if found != number + 1:
            raise DataDamaged(
                f"the table index has no {name_of(number + 1)}: after entry {number} comes "
                f"{found}. Restore the missing entries from a copy of the instance."
            )
        if number == records.number:
            by_id = dict(records.by_id)
        _apply(by_id, decode_entry(name_of(found), body))
        number = found
    return records if number == records.number else TableRecords.of(number, by_id.values())


def _apply(by_id: dict[str, TableRecord], change: Change) -> None:
    if change.record is None:
        by_id.pop(change.table_id, None)
    else:
        by_id[change.table_id] = change.record


def _differences(before: TableRecord, current: TableRecord) -> str:
    """Return the names of differing parts of a record, without their values, which may be long."""
    parts = ("name", "online", "properties")
    return ", ".join(part for part in parts if getattr(before, part) != getattr(current, part))
