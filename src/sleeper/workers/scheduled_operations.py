"""Operations on tables that a schedule asks for: a message for each table, run by whoever gets it.

1. `ask_for_operation` sends a message for each table that the operation may have work for
   (`ChangedTables`). Messages are in a FIFO queue, whose group is the table: so no table has two
   runs at a time.
2. `run_operation` runs the operation of a message.

An instance of many tables is idle most of the time, so tables that are as they were are not opened.
The number of a table's last commit tells whether there may be work; the numbers of a hundred tables
are one request. What was noted of each table is one object for each operation.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, Final

from sleeper.errors import BadRequest, SleeperError, TableNotFound
from sleeper.instance.instance import Instance
from sleeper.model.jobs.messages import NewMessage
from sleeper.model.known_properties.typed import TableProperties
from sleeper.model.tables import TableRecord
from sleeper.tables.report import FilesReport
from sleeper.tables.table import Table
from sleeper.workers.maintenance import MaintenanceStep, OnlineTable
from sleeper.workers.open_worker import open_compaction_worker
from sleeper.workers.stop_signal import Interrupted, StopSignal
from sleeper.workers.worker import WorkerSettings

OPERATIONS: Final = ("split", "collect", "measure", "compact")
"""What may be asked for: splits and merges of leaves; publishing and garbage; figures;
compactions."""

_DAY: Final = timedelta(days=1)
_LATER: Final = timedelta(hours=2)
"""How long after it may be deleted garbage is still looked for."""

_log = logging.getLogger(__name__)

Send = Callable[[Sequence[NewMessage]], set[str]]
"""Sends messages, each in the group of its table; returns the groups that were not sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOperation:
    """One operation on one table.

    Attributes:
        operation: One of `OPERATIONS`.
        table_id: The table.
        sweep: Whether orphans are looked for too, with `collect`: once a day.
    """

    operation: str
    table_id: str
    sweep: bool = False

    @classmethod
    def read(cls, body: str) -> TableOperation:
        """Return the operation in a message.

        Raises:
            BadRequest: there is none.
        """
        try:
            found = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise BadRequest(
                f"a message asks for no operation, as it is no JSON: {error}"
            ) from None
        if not isinstance(found, dict) or not isinstance(found.get("tableId"), str):
            raise BadRequest(
                f"a message asks for no operation, as it names no tableId: {body!r:.200}"
            )
        operation = checked_operation(found)
        return cls(operation=operation, table_id=found["tableId"], sweep=found.get("sweep") is True)

    def write(self) -> str:
        """Return the text of its message."""
        swept = {"sweep": True} if self.sweep else {}
        return json.dumps({"operation": self.operation, "tableId": self.table_id, **swept})


def checked_operation(asked: Mapping[str, object]) -> str:
    """Return the operation that a document names.

    Raises:
        BadRequest: it names none of `OPERATIONS`.
    """
    operation = asked.get("operation")
    if operation not in OPERATIONS:
        known = ", ".join(OPERATIONS)
        raise BadRequest(f"operation is {operation!r:.100}, but it must be one of {known}")
    return str(operation)


def ask_for_operation(instance: Instance, operation: str, send: Send) -> list[str]:
    """Ask for an operation on each online table that it may have work for (rule INS-13).

    Nothing is asked for while the instance is paused. A table whose message was not sent is asked
    for by the next call.

    Args:
        instance: The instance.
        operation: One of `OPERATIONS`.
        send: Sends the messages.

    Returns:
        The names of the tables.
    """
    follow_up = _collected_until if operation == "collect" else _nothing_later
    tables = ChangedTables(instance, operation, follow_up=follow_up)
    due = tables.due()
    if not due:
        return []
    if instance.pause_switch.paused_since() is not None:
        _log.info("%s is asked for no table: the instance is paused", operation)
        return []
    minute = f"{instance.now():%Y%m%d%H%M}"  # a schedule may call twice: SQS drops the second
    refused = send([_message(operation, each, minute) for each in due])
    sent = [each for each in due if each.record.table_id not in refused]
    tables.note(sent)
    if refused:
        _log.error("%s was not asked for %d of %d tables", operation, len(refused), len(due))
    return [each.record.name for each in sent]


def _message(operation: str, due: DueTable, minute: str) -> NewMessage:
    table_id = due.record.table_id
    sweep = operation == "collect" and due.is_first_of_day
    wanted = TableOperation(operation=operation, table_id=table_id, sweep=sweep)
    return NewMessage(
        body=wanted.write(),
        group=table_id,
        deduplication_id=f"{operation}-{table_id}-{minute}",
    )


def _nothing_later(_: TableProperties) -> timedelta:
    return timedelta(0)


def _collected_until(properties: TableProperties) -> timedelta:
    return timedelta(minutes=properties.gc.delay_minutes) + _LATER


def run_operation(
    instance: Instance,
    wanted: TableOperation,
    stop: StopSignal,
    *,
    report: Callable[[str, FilesReport], object],
) -> tuple[str, ...]:
    """Run an operation on its table; return what failed.

    A table that was deleted or taken offline since, and a paused instance, are left alone.

    Args:
        instance: The instance.
        wanted: The operation.
        stop: Asks for the end; looked at between two steps, and while a compaction runs.
        report: Called with the name of the table and its figures.

    Raises:
        StorageFailed: the table cannot be looked at now.
    """
    if instance.pause_switch.paused_since() is not None:
        _log.info(
            "%s of table %s is left: the instance is paused", wanted.operation, wanted.table_id
        )
        return ()
    try:
        table = instance.jobs.tables.table(wanted.table_id)
        table.refresh()
    except TableNotFound as deleted:
        _log.info("%s is left: %s", wanted.operation, deleted)
        return ()
    if not table.online:
        _log.info("%s of %s is left: the table is offline", wanted.operation, table.name)
        return ()
    if wanted.operation == "measure":
        report(table.name, table.report_files())
        return ()
    if wanted.operation == "compact":
        return _compacted(instance, table, stop)
    verbs = ("split", "merge") if wanted.operation == "split" else ("publish", "gc")
    return _maintained(table, (*verbs, *(["sweep"] if wanted.sweep else [])), stop)


def _maintained(table: Table, verbs: Sequence[str], stop: StopSignal) -> tuple[str, ...]:
    online = OnlineTable(table, stop)
    failures: list[str] = []
    for verb in verbs:
        try:
            step = online.maintain(verb)
        except (SleeperError, Interrupted) as failure:
            step = MaintenanceStep(table=table.name, verb=verb, failures=(str(failure),))
        if step is None:
            continue
        if step.done is not None:
            _log.info("%s: %s", table.name, step.done)
        for why in step.failures:
            _log.error("%s: %s failed: %s", table.name, verb, why)
        failures += step.failures
    return tuple(failures)


def _compacted(instance: Instance, table: Table, stop: StopSignal) -> tuple[str, ...]:
    """Compact one table, as a worker does; what is left when the time is over has no claim."""
    settings = WorkerSettings(until_empty=True)
    open_compaction_worker(instance, settings, stop, tables=lambda: (table,)).run()
    return ()


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
