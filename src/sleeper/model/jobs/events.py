"""What happened to jobs and tasks: the events that trackers keep (rules TRK-1, TRK-4, TRK-6)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from typing import Final

from sleeper.html.values import NotebookHtml
from sleeper.model.jobs.kinds import JobKind

UNKNOWN_TABLE: Final = "-"
"""The table id of a job whose table does not exist (rule ING-10)."""


class JobEventType(StrEnum):
    """What happened to a job.

    CREATED is for compactions alone. ADDED_FILES is the commit of an ingest, COMMITTED that of a
    compaction. FINISHED ends a run whose work is done, though a commit may still be under way.
    """

    CREATED = "created"
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    STARTED = "started"
    FINISHED = "finished"
    ADDED_FILES = "added_files"
    COMMITTED = "committed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent(NotebookHtml):
    """Something that happened to a job. What does not apply to its type is None or empty.

    Attributes:
        kind: What the job does.
        table_id: Its table, or `UNKNOWN_TABLE`.
        job_id: The job.
        type: What happened.
        at: When (aware, UTC), by the clock of whoever saw it.
        run_id: The run that it happened in: one attempt to do the job. None where it belongs to
            the job as a whole.
        task_id: The task (a worker process) that ran it.
        reasons: Why it was rejected, or the chain of failures, outermost first (rule TRK-5).
        message: The message as it came, of a job that was rejected.
        platform: Where a bulk import runs; None for standard ingest and all else.
        input_files: How many files it reads.
        input_hash: Tells its input from other input, for a job id that is used again.
        files: How many files it wrote or added.
        rows_read: Rows that it read.
        rows_written: Rows that it wrote.
        transaction: The table's transaction number that has its result.
        partition_id: The leaf of a compaction.
        locations: Where results are, of a query or an export.
        commit_s: Seconds from when its commit was asked for until it was in the table's log; None
            where it was not measured.
        is_committed: False in a FINISHED event whose commit another process does later.
        is_final: True in a FAILED event after which the job is not tried again by itself.
        message_id: The message that asked for it: each submission has one of its own, and keeps it
            however often it is delivered. None for what no message asked for.
        attempt: Which attempt at this message it belongs to, from 1: what its worker knew of those
            before. None where nobody counted.
    """

    kind: JobKind
    table_id: str
    job_id: str
    type: JobEventType
    at: datetime
    run_id: str | None = None
    task_id: str | None = None
    reasons: tuple[str, ...] = ()
    message: str | None = None
    platform: str | None = None
    input_files: int | None = None
    input_hash: str | None = None
    files: int | None = None
    rows_read: int | None = None
    rows_written: int | None = None
    transaction: int | None = None
    partition_id: str | None = None
    locations: tuple[str, ...] = ()
    commit_s: float | None = None
    is_committed: bool = True
    is_final: bool = False
    message_id: str | None = None
    attempt: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEvent(NotebookHtml):
    """A task started or finished. A task is one worker process.

    Attributes:
        kind: What its jobs do.
        task_id: The task.
        at: When (aware, UTC).
        is_finished: False for the start, True for the end.
        host: The machine it runs on.
        pid: Its process id there.
        jobs: Runs of jobs that it ended, well or badly.
        rows_read: Rows they read.
        rows_written: Rows they wrote.
        busy_s: Seconds it spent on them.
    """

    kind: JobKind
    task_id: str
    at: datetime
    is_finished: bool
    host: str
    pid: int
    jobs: int = 0
    rows_read: int = 0
    rows_written: int = 0
    busy_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Which jobs are asked for. What is None does not matter.

    Attributes:
        kind: What they do.
        table_id: Their table.
        task_id: A task that ran them.
        since: Something happened to them at this time or later (aware, UTC).
        until: Something happened to them before this time (aware, UTC).
    """

    kind: JobKind
    table_id: str | None = None
    task_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None


def hash_of_paths(paths: Iterable[str]) -> str:
    """Return what tells one list of files from another, in any order, for `JobEvent.input_hash`."""
    return sha256("\n".join(sorted(paths)).encode()).hexdigest()[:32]
