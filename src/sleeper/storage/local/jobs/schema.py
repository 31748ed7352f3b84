"""The tables of the file. Times are microseconds since 1970 (UTC)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

VERSION: Final = 1
"""`PRAGMA user_version` of the file."""

APPLICATION_ID: Final = 0x534C5052
"""`PRAGMA application_id` of the file: SLPR in ASCII."""

STATEMENTS: Final = (
    # The largest `since` of a queue's messages: when it is far ahead, the clock was set back.
    "CREATE TABLE clock(queue TEXT PRIMARY KEY, latest INTEGER NOT NULL) WITHOUT ROWID",
    # A message is hidden from `since` to `visible`.
    """CREATE TABLE message(
        number INTEGER PRIMARY KEY AUTOINCREMENT, queue TEXT NOT NULL, message_id TEXT NOT NULL,
        body TEXT NOT NULL, message_group TEXT, sent INTEGER NOT NULL, since INTEGER NOT NULL,
        visible INTEGER NOT NULL, receives INTEGER NOT NULL DEFAULT 0, receipt TEXT)""",
    "CREATE INDEX message_visible ON message(queue, visible, sent, since)",
    "CREATE INDEX message_order ON message(queue) WHERE message_group IS NOT NULL",
    """CREATE TABLE dead_letter(
        number INTEGER PRIMARY KEY AUTOINCREMENT, queue TEXT NOT NULL, message_id TEXT NOT NULL,
        body TEXT NOT NULL, message_group TEXT, sent INTEGER NOT NULL, reason TEXT NOT NULL,
        receives INTEGER NOT NULL, buried INTEGER NOT NULL)""",
    "CREATE INDEX dead_letter_queue ON dead_letter(queue)",
    """CREATE TABLE deduplication(
        queue TEXT NOT NULL, id TEXT NOT NULL, since INTEGER NOT NULL,
        PRIMARY KEY(queue, id)) WITHOUT ROWID""",
    "CREATE INDEX deduplication_since ON deduplication(queue, since)",
    # `body` is the event as JSON, `digest` its hash.
    """CREATE TABLE job_event(
        number INTEGER PRIMARY KEY AUTOINCREMENT, job INTEGER NOT NULL, task_id TEXT,
        at INTEGER NOT NULL, expires INTEGER NOT NULL, digest BLOB NOT NULL, body TEXT NOT NULL,
        UNIQUE(job, digest))""",
    "CREATE INDEX job_event_task ON job_event(task_id) WHERE task_id IS NOT NULL",
    "CREATE INDEX job_event_expires ON job_event(expires)",
    # `newest` and `oldest` are those of the job's events.
    """CREATE TABLE job(
        number INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, job_id TEXT NOT NULL,
        table_id TEXT NOT NULL, newest INTEGER NOT NULL, oldest INTEGER NOT NULL,
        UNIQUE(kind, job_id, table_id))""",
    "CREATE INDEX job_newest ON job(kind, newest)",
    """CREATE TABLE task_event(
        number INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, task_id TEXT NOT NULL,
        at INTEGER NOT NULL, expires INTEGER NOT NULL, digest BLOB NOT NULL, body TEXT NOT NULL,
        UNIQUE(kind, task_id, digest))""",
    "CREATE INDEX task_event_expires ON task_event(expires)",
    # A file without a job has an empty job id.
    """CREATE TABLE submitted_file(
        number INTEGER PRIMARY KEY AUTOINCREMENT, job_id TEXT NOT NULL, table_id TEXT NOT NULL,
        path TEXT NOT NULL, size_bytes INTEGER NOT NULL, received INTEGER NOT NULL,
        expires INTEGER NOT NULL, UNIQUE(job_id, table_id, path))""",
    "CREATE INDEX submitted_file_received ON submitted_file(received)",
    "CREATE INDEX submitted_file_path ON submitted_file(table_id, path)",
    "CREATE INDEX submitted_file_expires ON submitted_file(expires)",
    """CREATE TABLE unsent_job(
        number INTEGER PRIMARY KEY AUTOINCREMENT, job_id TEXT NOT NULL UNIQUE,
        table_id TEXT NOT NULL, queue TEXT NOT NULL)""",
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def as_number(time: datetime) -> int:
    """Return an aware time as the file has it."""
    return (time - _EPOCH) // _MICROSECOND


def as_time(number: int) -> datetime:
    """Return a time of the file (aware, UTC)."""
    return _EPOCH + timedelta(microseconds=number)
