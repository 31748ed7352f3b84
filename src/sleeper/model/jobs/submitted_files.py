"""Files that were submitted to the ingest batcher (rules BAT-1 to BAT-3)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sleeper.html.values import NotebookHtml
from sleeper.model.csv_options import CsvOptions
from sleeper.model.jobs.kinds import QueueName


class FileState(StrEnum):
    """How far a submitted file is: without a job, in a job, and what became of that job."""

    PENDING = "PENDING"
    BATCHED = "BATCHED"
    FINISHED = "FINISHED"
    REJECTED = "REJECTED"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmittedFile(NotebookHtml):
    """A file that waits to be ingested, or is in a job.

    Attributes:
        table_id: The table it is for.
        path: Its path or URL, as a job names it.
        size_bytes: How large it was when it was submitted.
        received: When it was submitted (aware, UTC).
        expires: When the batcher may forget it (aware, UTC).
        csv: How it is written, if it is CSV and was submitted so.
        upsert: Whether its rows replace those of the same row keys.
        job_id: The job it is in; None while it is pending.
        state: How far it is; None where nobody asked the tracker.
        reasons: Why its job was rejected or failed for good, outermost first.
    """

    table_id: str
    path: str
    size_bytes: int
    received: datetime
    expires: datetime
    csv: CsvOptions | None = None
    upsert: bool = False
    job_id: str | None = None
    state: FileState | None = None
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RetriedFiles(NotebookHtml):
    """What was put back of jobs that were rejected, or failed for good.

    Attributes:
        jobs: Jobs that are sent again, each under its id.
        files: Files in them.
        missing: Files that are there no longer: they are left out of their jobs, and forgotten.
    """

    jobs: int
    files: int
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsentJob:
    """A job that was made of files and may not have been sent to its queue.

    Attributes:
        job_id: The job.
        table_id: Its table.
        queue: Where it is to be sent.
        paths: Its files.
        csv: How all of them are written, if they are CSV and were submitted so.
        upsert: Whether the job is to replace rows.
    """

    job_id: str
    table_id: str
    queue: QueueName
    paths: tuple[str, ...]
    csv: CsvOptions | None = None
    upsert: bool = False
