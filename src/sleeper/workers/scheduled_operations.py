"""Operations on tables that a schedule asks for: a message for each table, run by whoever gets it.

Messages are in a FIFO queue, whose group is the table: so no table has two runs at a time.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from sleeper.errors import BadRequest, SleeperError, TableNotFound
from sleeper.instance.instance import Instance
from sleeper.model.jobs.messages import NewMessage
from sleeper.model.known_properties.typed import TableProperties
from sleeper.tables.report import FilesReport
from sleeper.tables.table import Table
from sleeper.workers.changed_tables import ChangedTables, DueTable
from sleeper.workers.maintenance import MaintenanceStep, Stopped
from sleeper.workers.online_tables import OnlineTable
from sleeper.workers.open_worker import open_compaction_worker
from sleeper.workers.worker import WorkerSettings

OPERATIONS: Final = ("split", "collect", "measure", "compact")
"""What may be asked for: splits and merges of leaves, garbage, figures, compactions."""

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
    *,
    stopped: Callable[[], bool],
    rest: Callable[[float], object],
    tell: Callable[[str, FilesReport], object],
) -> tuple[str, ...]:
    """Run an operation on its table; return what failed.

    A table that was deleted or taken offline since, and a paused instance, are left alone.

    Args:
        instance: The instance.
        wanted: The operation.
        stopped: Returns whether to end: between two steps, and while a compaction runs.
        rest: Waits for so many seconds.
        tell: Takes the figures of the table, by its name.

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
        tell(table.name, table.report_files())
        return ()
    if wanted.operation == "compact":
        return _compacted(instance, table, stopped=stopped, rest=rest)
    verbs = ("split", "merge") if wanted.operation == "split" else ("gc",)
    return _maintained(table, (*verbs, *(["sweep"] if wanted.sweep else [])), stopped)


def _maintained(table: Table, verbs: Sequence[str], stopped: Callable[[], bool]) -> tuple[str, ...]:
    kept = OnlineTable(table, 1, stopped)
    failures: list[str] = []
    for verb in verbs:
        try:
            step = kept.maintain(verb)
        except (SleeperError, Stopped) as failure:
            step = MaintenanceStep(table=table.name, verb=verb, failures=(str(failure),))
        if step is None:
            continue
        if step.done is not None:
            _log.info("%s: %s", table.name, step.done)
        for why in step.failures:
            _log.error("%s: %s failed: %s", table.name, verb, why)
        failures += step.failures
    return tuple(failures)


def _compacted(
    instance: Instance,
    table: Table,
    *,
    stopped: Callable[[], bool],
    rest: Callable[[float], object],
) -> tuple[str, ...]:
    """Compact one table, as a worker does; what is left when the time is over has no claim."""
    open_compaction_worker(
        instance,
        WorkerSettings(until_empty=True),
        host=os.uname().nodename,
        pid=os.getpid(),
        stopped=stopped,
        rest=rest,
        tables=lambda: (table,),
    ).run()
    return ()
