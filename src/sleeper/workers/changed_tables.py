"""Which tables an operation has work for, without opening those that are as they were.

An instance of many tables is idle most of the time. The number of a table's last commit tells
whether there may be work; the numbers of a hundred tables are one request. What was noted of each
table is one object for each operation.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, Final

from sleeper.instance.instance import Instance
from sleeper.model.known_properties.typed import TableProperties
from sleeper.model.tables import TableRecord

_DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class DueTable:
    """A table that an operation is to be run on.

    Attributes:
        record: The table.
        number: The number of its last commit.
        note: What is to be noted of it when the operation is asked for.
        is_first_of_day: Whether the operation was last asked for as the first of a day at least a
            day ago.
    """

    record: TableRecord
    number: int
    is_first_of_day: bool
    note: dict[str, Any] = field(default_factory=dict)


class ChangedTables:
    """The online tables of an instance that have changed since an operation was asked for.

    A table without a change is due once a day all the same, and for a while after a change where
    the operation does later what the change made possible.

    Args:
        instance: The instance.
        operation: Names the notes.
        follow_up: For how long after a change a table stays due, by its properties.

    Attributes:
        instance: The instance.
    """

    def __init__(
        self,
        instance: Instance,
        operation: str,
        *,
        follow_up: Callable[[TableProperties], timedelta] = lambda properties: timedelta(0),
    ) -> None:
        self.instance = self._instance = instance
        self._operation = operation
        self._follow_up = follow_up
        self._notes = instance.service_notes.read(operation)

    def due(self) -> list[DueTable]:
        """Return the tables that are due now, ordered by name."""
        online = [record for record in self._instance.tables() if record.online]
        known = {
            record.table_id: int(note["number"])
            for record in online
            if isinstance((note := self._notes.get(record.table_id, {})).get("number"), int)
        }
        numbers = self._instance.jobs.tables.last_numbers(online, known)
        now = self._instance.now()
        found = (self._due(record, numbers.get(record.table_id, 0), now) for record in online)
        self._notes = {
            record.table_id: self._notes[record.table_id]
            for record in online
            if record.table_id in self._notes
        }
        return [each for each in found if each is not None]

    def note(self, tables: Iterable[DueTable]) -> None:
        """Store that the operation was asked for these tables."""
        noted = {each.record.table_id: each.note for each in tables}
        if noted:
            self._notes = {**self._notes, **noted}
            self._instance.service_notes.write(self._operation, self._notes)

    def _due(self, record: TableRecord, number: int, now: datetime) -> DueTable | None:
        before = self._notes.get(record.table_id, {})
        properties = _hash_of(record)
        changed_at, daily_at = _time(before, "changed"), _time(before, "daily")
        is_changed = (before.get("number"), before.get("properties")) != (number, properties)
        if is_changed or changed_at is None or changed_at > now:
            changed_at, is_changed = now, True
        is_first = daily_at is None or not timedelta(0) <= now - daily_at < _DAY
        later = self._follow_up(TableProperties(record.properties, self._instance.properties))
        if not (is_changed or is_first or now - changed_at < later):
            return None
        note = {
            "number": number,
            "properties": properties,
            "changed": changed_at.isoformat(),
            "daily": now.isoformat() if is_first or daily_at is None else daily_at.isoformat(),
        }
        return DueTable(record, number, is_first, note)


def _time(note: dict[str, Any], name: str) -> datetime | None:
    try:
        time = datetime.fromisoformat(str(note.get(name)))
    except ValueError:
        return None
    return time if time.tzinfo is not None else None


def _hash_of(record: TableRecord) -> str:
    """Tells a table's properties from others: a changed threshold may make work."""
    text = json.dumps(record.properties, sort_keys=True)
    return sha256(text.encode()).hexdigest()[:16]
