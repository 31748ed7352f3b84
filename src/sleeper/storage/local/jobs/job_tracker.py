"""The tracker in the SQLite file."""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Iterator, Sequence
from datetime import datetime
from hashlib import blake2b
from typing import Any

from sleeper.model.formats.job_events import decode_job_event, decode_task_event, encode_event
from sleeper.model.jobs.events import JobEvent, JobFilter, TaskEvent
from sleeper.model.jobs.kinds import JobKind
from sleeper.storage.local.jobs.database import JobDatabase, as_number

_JOB = """
    INSERT INTO job(kind, job_id, table_id, newest, oldest)
    VALUES(:kind, :job_id, :table_id, :at, :at)
    ON CONFLICT(kind, job_id, table_id)
    DO UPDATE SET newest = max(newest, :at), oldest = min(oldest, :at)
    RETURNING number"""
_FITTING = """
    SELECT number FROM job WHERE kind = :kind
        AND (:table_id IS NULL OR table_id = :table_id)
        AND (:since IS NULL OR newest >= :since)
        AND (:until IS NULL OR oldest < :until)
        AND (:task_id IS NULL OR number IN (SELECT job FROM job_event WHERE task_id = :task_id))
    ORDER BY newest DESC, number"""
_TASKS = """
    SELECT kind, task_id FROM task_event WHERE :kind IS NULL OR kind = :kind
    GROUP BY kind, task_id ORDER BY min(at) DESC, min(number)"""
_CHANGED_JOBS = """
    UPDATE job SET
        newest = coalesce((SELECT max(at) FROM job_event WHERE job = job.number), newest),
        oldest = coalesce((SELECT min(at) FROM job_event WHERE job = job.number), oldest)
    WHERE number IN (SELECT number FROM changed)"""
_EMPTY_JOBS = """
    DELETE FROM job WHERE number IN (SELECT number FROM changed)
        AND NOT EXISTS (SELECT 1 FROM job_event WHERE job = job.number)"""


class SqliteTracker:
    """Events of jobs and tasks, safe for threads and processes.

    The last events may be lost in a power cut.

    Args:
        database: The file.
    """

    def __init__(self, database: JobDatabase) -> None:
        self._database = database

    def record(self, events: Sequence[JobEvent | TaskEvent], *, expires: datetime) -> None:
        """Keep events; one that is there already stays as it is."""
        if not events:
            return
        rows = [_row(event, as_number(expires)) for event in events]  # others wait for the file
        with self._database.writing(durable=False) as connection:
            for row in rows:
                _record(connection, row)

    def events_of_job(self, kind: JobKind, job_id: str) -> list[JobEvent]:
        """Return what happened to a job."""
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT body FROM job_event WHERE job IN"
                " (SELECT number FROM job WHERE kind = ? AND job_id = ?) ORDER BY number",
                (kind, _storable(job_id)),
            ).fetchall()
        events = (decode_job_event(body) for (body,) in rows)
        return [each for each in events if each.job_id == job_id]

    def jobs(self, wanted: JobFilter) -> Iterator[list[JobEvent]]:
        """Yield the events of each job that fits. Beside a page, it holds 8 bytes a job.

        Which jobs, and their order, are those of the first look; their events are newer.
        """
        look = {
            "kind": wanted.kind,
            "table_id": _storable(wanted.table_id),
            "task_id": _storable(wanted.task_id),
            "since": None if wanted.since is None else as_number(wanted.since),
            "until": None if wanted.until is None else as_number(wanted.until),
        }
        with self._database.reading() as connection:
            numbers = array("q", (number for (number,) in connection.execute(_FITTING, look)))
        for number in numbers:
            with self._database.reading() as connection:
                rows = connection.execute(
                    "SELECT body FROM job_event WHERE job = ? ORDER BY number", (number,)
                ).fetchall()
            if rows:  # it may have expired since
                yield [decode_job_event(body) for (body,) in rows]

    def tasks(self, kind: JobKind | None = None) -> Iterator[list[TaskEvent]]:
        """Yield the events of each task."""
        with self._database.reading() as connection:
            tasks = connection.execute(_TASKS, {"kind": kind}).fetchall()
        for task in tasks:
            with self._database.reading() as connection:
                rows = connection.execute(
                    "SELECT body FROM task_event WHERE kind = ? AND task_id = ? ORDER BY number",
                    task,
                ).fetchall()
            if rows:
                yield [decode_task_event(body) for (body,) in rows]

    def delete_expired(self, now: datetime) -> int:
        """Delete events that have expired."""
        until = (as_number(now),)
        with self._database.writing(durable=False) as connection:
            connection.execute("CREATE TEMP TABLE changed(number INTEGER PRIMARY KEY)")
            connection.execute(
                "INSERT INTO changed SELECT DISTINCT job FROM job_event WHERE expires < ?", until
            )
            deleted = connection.execute("DELETE FROM job_event WHERE expires < ?", until).rowcount
            for statement in (_EMPTY_JOBS, _CHANGED_JOBS, "DROP TABLE changed"):
                connection.execute(statement)
            tasks = connection.execute("DELETE FROM task_event WHERE expires < ?", until).rowcount
        return deleted + tasks


def _row(event: JobEvent | TaskEvent, expires: int) -> dict[str, Any]:
    """Return what is written of an event; only events of jobs have a job id."""
    body = encode_event(event)
    values = {
        "kind": event.kind,
        "task_id": _storable(event.task_id),
        "at": as_number(event.at),
        "expires": expires,
        "digest": blake2b(body.encode(), digest_size=16).digest(),
        "body": body,
    }
    if isinstance(event, JobEvent):
        values |= {"job_id": _storable(event.job_id), "table_id": _storable(event.table_id)}
    return values


def _record(connection: sqlite3.Connection, row: dict[str, Any]) -> None:
    if "job_id" not in row:
        connection.execute(
            "INSERT OR IGNORE INTO task_event(kind, task_id, at, expires, digest, body)"
            " VALUES(:kind, :task_id, :at, :expires, :digest, :body)",
            row,
        )
        return
    number = connection.execute(_JOB, row).fetchone()[0]
    connection.execute(
        "INSERT OR IGNORE INTO job_event(job, task_id, at, expires, digest, body)"
        " VALUES(:job, :task_id, :at, :expires, :digest, :body)",
        {**row, "job": number},
    )


def _storable(text: str | None) -> str | None:
    """Return text that SQLite can hold: an id from JSON may have half of a surrogate pair."""
    return None if text is None else text.encode("utf-8", "backslashreplace").decode()
