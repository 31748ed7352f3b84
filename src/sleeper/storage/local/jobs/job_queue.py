"""A queue in the SQLite file."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from sleeper.model.jobs.kinds import QueueName
from sleeper.model.jobs.messages import (
    CLOCK_STEP,
    DEDUPLICATION,
    DeadLetter,
    NewMessage,
    QueueDepth,
    QueueSettings,
    ReceivedMessage,
    check_hidden,
    check_new_messages,
    check_receive,
    received_too_often,
)
from sleeper.ports.ids import NewId
from sleeper.storage.local.jobs.database import JobDatabase, as_number, as_time

logger = logging.getLogger(__name__)

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.01, 0.4
_MICROSECOND = timedelta(microseconds=1)
_STEP = CLOCK_STEP // _MICROSECOND
_REMEMBERED = DEDUPLICATION // _MICROSECOND
_SECOND = 1_000_000

_READY = """
    SELECT number, message_id, body, message_group, sent, receives FROM message
    WHERE queue = :queue AND visible <= :now ORDER BY visible, sent, number LIMIT :count"""
_READY_FIFO = """
    SELECT number, message_id, body, message_group, sent, receives
    FROM message INDEXED BY message_order
    WHERE queue = :queue AND visible <= :now AND message_group IS NOT NULL
        AND message_group NOT IN (
            SELECT message_group FROM message WHERE queue = :queue AND visible > :now)
    ORDER BY number LIMIT :count"""
_LETTERS = """
    SELECT message_id, body, message_group, reason, receives, sent, buried
    FROM dead_letter WHERE queue = ?"""
_BURY = """
    INSERT INTO dead_letter(queue, message_id, body, message_group, sent, reason, receives, buried)
    SELECT queue, message_id, body, message_group, sent, ?, receives, ?
    FROM message WHERE number = ?"""
_REDRIVE = """
    INSERT INTO message(queue, message_id, body, message_group, sent, since, visible)
    SELECT queue, message_id, body, message_group, sent, :now, :now
    FROM dead_letter
    WHERE queue = :queue
        AND (:ids IS NULL OR message_id IN (SELECT value FROM json_each(:ids)))
    ORDER BY number"""
_DELETE_DEAD = """
    DELETE FROM dead_letter
    WHERE queue = :queue
        AND (:ids IS NULL OR message_id IN (SELECT value FROM json_each(:ids)))"""


class SqliteQueue:
    """One queue of the file, safe for threads and processes.

    A send survives a power cut, but for messages that are sent again. A receipt or a deletion may
    be lost in one: then the message is delivered again. What a power cut takes is always the last
    that was written to the file, so a deletion never outlives a send before it.

    Args:
        database: The file.
        name: The queue.
        settings: How it delivers.
        now: The clock (aware, UTC).
        sleep: Waits for so many seconds.
        new_id: Makes ids of messages and receipts.
    """

    def __init__(
        self,
        database: JobDatabase,
        name: QueueName,
        settings: QueueSettings,
        *,
        now: Callable[[], datetime],
        sleep: Callable[[float], None],
        new_id: NewId,
    ) -> None:
        self._database, self._name, self._settings = database, name, settings
        self._now, self._sleep, self._new_id = now, sleep, new_id
        self._ready = _READY_FIFO if settings.fifo else _READY

    def send(self, messages: Sequence[NewMessage]) -> None:
        """Store messages, all or none."""
        check_new_messages(messages, self._name, self._settings)
        if not messages:
            return
        durable = not all(each.is_sent_again for each in messages)
        with self._database.writing(durable=durable) as connection:
            now = self._time(connection)
            connection.executemany(
                "INSERT INTO message(queue, message_id, body, message_group, sent, since, visible)"
                " VALUES(?, ?, ?, ?, ?, ?, ?)",
                [
                    (self._name, message_id, each.body, each.group, now, now, now + delay)
                    for each in messages
                    if self._is_new(connection, each.deduplication_id, now)
                    for delay in (_microseconds(each.delay_s),)
                    for message_id in (each.message_id or self._new_id(),)
                ],
            )

    def receive(
        self, count_max: int = 1, *, wait_s: float = 0.0, visibility_s: float | None = None
    ) -> list[ReceivedMessage]:
        """Return messages that are ready, and hide them. Waiting only reads."""
        hidden_s = self._settings.visibility_s if visibility_s is None else visibility_s
        check_receive(count_max, wait_s, hidden_s)
        waited_s, pause_s = 0.0, _FIRST_PAUSE_S
        while True:
            received = self._take(count_max, hidden_s) if self._may_have_ready() else []
            if received or waited_s >= wait_s:
                return received
            pause_s = min(pause_s, wait_s - waited_s)
            self._sleep(pause_s)
            waited_s += pause_s
            pause_s = min(1.5 * pause_s, _LONGEST_PAUSE_S)

    def extend(self, receipt: str, visibility_s: float) -> bool:
        """Hide a message from now on."""
        check_hidden(visibility_s, "visibility_s")
        return self._hide(receipt, visibility_s)

    def release(self, receipt: str, delay_s: float = 0.0, *, counted: bool = True) -> bool:
        """Let a message be received again after a delay."""
        check_hidden(delay_s, "delay_s")
        return self._hide(receipt, delay_s, uncounted=0 if counted else 1)

    def delete(self, receipts: Sequence[str]) -> list[bool]:
        """Delete messages."""
        if not receipts:
            return []
        with self._database.writing(durable=False) as connection:
            self._time(connection)
            found = (self._find(connection, receipt) for receipt in receipts)
            return [number is not None and _delete(connection, number) for number in found]

    def bury(self, receipt: str, reason: str) -> bool:
        """Make a message a dead letter."""
        with self._database.writing(durable=True) as connection:
            now = self._time(connection)
            number = self._find(connection, receipt)
            if number is None:
                return False
            connection.execute(_BURY, (reason, now, number))
            return _delete(connection, number)

    def dead_letters(self, count_max: int = 100) -> list[DeadLetter]:
        """Return dead letters, oldest first."""
        with self._database.reading() as connection:
            rows = connection.execute(
                f"{_LETTERS} ORDER BY number LIMIT ?", (self._name, max(0, count_max))
            ).fetchall()
        return [_letter(row) for row in rows]

    def dead_letter(self, message_id: str) -> DeadLetter | None:
        """Return one dead letter."""
        with self._database.reading() as connection:
            row = connection.execute(
                f"{_LETTERS} AND message_id = ?", (self._name, message_id)
            ).fetchone()
        return None if row is None else _letter(row)

    def redrive(self, message_ids: Sequence[str] | None = None) -> int:
        """Make dead letters messages again, behind all others."""
        with self._database.writing(durable=True) as connection:
            now = self._time(connection)
            chosen = {"queue": self._name, "now": now, "ids": _json_list(message_ids)}
            connection.execute(_REDRIVE, chosen)
            return self._delete_dead(connection, message_ids)

    def delete_dead_letters(self, message_ids: Sequence[str] | None = None) -> int:
        """Delete dead letters."""
        with self._database.writing(durable=True) as connection:
            return self._delete_dead(connection, message_ids)

    def ready(self) -> int:
        """Count the messages that wait."""
        return self.depth().ready

    def depth(self) -> QueueDepth:
        """Count messages."""
        now = as_number(self._now())
        with self._database.reading() as connection:
            every, hidden, sent, dead = connection.execute(
                "SELECT count(*), coalesce(sum(visible > :now AND since <= :now + :step), 0),"
                " min(sent),"
                " (SELECT count(*) FROM dead_letter WHERE queue = :queue)"
                " FROM message WHERE queue = :queue",
                {"queue": self._name, "now": now, "step": _STEP},
            ).fetchone()
        oldest_s = None if sent is None else max(0.0, (now - sent) / _SECOND)
        return QueueDepth(ready=every - hidden, hidden=hidden, dead=dead, oldest_s=oldest_s)

    def _time(self, connection: sqlite3.Connection) -> int:
        """Return the time; what was hidden before the clock was set back is hidden no more."""
        now = as_number(self._now())
        latest = self._latest(connection)
        if latest > now + _STEP:
            shown = connection.execute(
                "UPDATE message SET since = :now, visible = :now"
                " WHERE queue = :queue AND since > :now + :step",
                {"queue": self._name, "now": now, "step": _STEP},
            ).rowcount
            self._note_latest(connection, now + _STEP)
            logger.warning(
                "the clock was set back to %s: %d messages of queue %s in %s are ready at once",
                as_time(now),
                shown,
                self._name,
                self._database.path,
            )
        elif latest < now:  # written once a second, not with each message
            self._note_latest(connection, now + _SECOND)
        return now

    def _latest(self, connection: sqlite3.Connection) -> int:
        """Return a time that is not before the `since` of any message."""
        row = connection.execute("SELECT latest FROM clock WHERE queue = ?", (self._name,))
        found = row.fetchone()
        return 0 if found is None else int(found[0])

    def _note_latest(self, connection: sqlite3.Connection, latest: int) -> None:
        connection.execute("INSERT OR REPLACE INTO clock VALUES(?, ?)", (self._name, latest))

    def _is_new(
        self, connection: sqlite3.Connection, deduplication_id: str | None, now: int
    ) -> bool:
        if deduplication_id is None:
            return True
        connection.execute(
            "DELETE FROM deduplication WHERE queue = :queue AND since <= :forgotten",
            {"queue": self._name, "forgotten": now - _REMEMBERED},
        )
        return bool(
            connection.execute(
                "INSERT INTO deduplication VALUES(:queue, :id, :now)"
                " ON CONFLICT(queue, id) DO UPDATE SET since = :now WHERE since > :now + :step",
                {"queue": self._name, "id": deduplication_id, "now": now, "step": _STEP},
            ).rowcount
        )

    def _may_have_ready(self) -> bool:
        """Look without a lock whether a receive could find something."""
        now = as_number(self._now())
        look = {"queue": self._name, "now": now, "count": 1}
        with self._database.reading() as connection:
            if connection.execute(self._ready, look).fetchone() is not None:
                return True
            return self._latest(connection) > now + _STEP

    def _take(self, count_max: int, hidden_s: float) -> list[ReceivedMessage]:
        received: list[ReceivedMessage] = []
        with self._database.writing(durable=False) as connection:
            now = self._time(connection)
            look = {"queue": self._name, "now": now, "count": count_max}
            while rows := connection.execute(self._ready, look).fetchall():
                used_up = [row for row in rows if row[-1] >= self._settings.receives_max]
                for number, *_, receives in used_up:
                    connection.execute(_BURY, (received_too_often(receives), now, number))
                    _delete(connection, number)
                if not used_up:
                    received = [self._delivery(row) for row in rows]
                    break
            visible = now + _microseconds(hidden_s)
            connection.executemany(
                "UPDATE message SET since = ?, visible = ?, receives = ?, receipt = ?"
                " WHERE number = ?",
                [
                    (now, visible, each.receives, each.receipt, _number_of(each.receipt))
                    for each in received
                ],
            )
        return received

    def _delivery(self, row: tuple[int, str, str, str | None, int, int]) -> ReceivedMessage:
        number, message_id, body, group, sent, receives = row
        return ReceivedMessage(
            receipt=f"{number}-{self._new_id()}",
            message_id=message_id,
            body=body,
            group=group,
            receives=receives + 1,
            sent=as_time(sent),
        )

    def _hide(self, receipt: str, seconds: float, uncounted: int = 0) -> bool:
        with self._database.writing(durable=False) as connection:
            now = self._time(connection)
            number = self._find(connection, receipt)
            connection.execute(
                "UPDATE message SET since = ?, visible = ?, receives = max(0, receives - ?)"
                " WHERE number = ?",
                (now, now + _microseconds(seconds), uncounted, number),
            )
            return number is not None

    def _find(self, connection: sqlite3.Connection, receipt: str) -> int | None:
        """Return the number of a receipt's message; None when the receipt is stale."""
        found = connection.execute(
            "SELECT number FROM message WHERE number = ? AND receipt = ? AND queue = ?",
            (_number_of(receipt), receipt, self._name),
        ).fetchone()
        return None if found is None else int(found[0])

    def _delete_dead(self, connection: sqlite3.Connection, ids: Sequence[str] | None) -> int:
        return connection.execute(
            _DELETE_DEAD, {"queue": self._name, "ids": _json_list(ids)}
        ).rowcount


def _letter(row: tuple[str, str, str | None, str, int, int, int]) -> DeadLetter:
    message_id, body, group, reason, receives, sent, buried = row
    return DeadLetter(
        message_id=message_id,
        body=body,
        group=group,
        reason=reason,
        receives=receives,
        sent=as_time(sent),
        buried=as_time(buried),
    )


def _number_of(receipt: str) -> int | None:
    number, _, _ = receipt.partition("-")
    return int(number) if number.isdecimal() and len(number) < 19 else None


def _delete(connection: sqlite3.Connection, number: int) -> bool:
    return connection.execute("DELETE FROM message WHERE number = ?", (number,)).rowcount == 1


def _json_list(ids: Sequence[str] | None) -> str | None:
    return None if ids is None else json.dumps(list(ids))


def _microseconds(seconds: float) -> int:
    return timedelta(seconds=seconds) // _MICROSECOND
