"""Files that were submitted to the ingest batcher (rules BAT-1 to BAT-3)."""

from __future__ import annotations

from datetime import datetime

from sleeper.language.value_classes import dataclass
from sleeper.model.jobs.messages import QueueName


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmittedFile:
    """A file that waits to be ingested, or is in a job.

    Attributes:
        table_id: The table it is for.
        path: Its path or URL, as a job names it.
        size_bytes: How large it was when it was submitted.
        received: When it was submitted (aware, UTC).
        expires: When the batcher may forget it (aware, UTC).
        job_id: The job it is in; None while it is pending.
    """

    table_id: str
    path: str
    size_bytes: int
    received: datetime
    expires: datetime
    job_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsentJob:
    """A job that was made of files and may not have been sent to its queue.

    Attributes:
        job_id: The job.
        table_id: Its table.
        queue: Where it is to be sent.
        paths: Its files.
    """

    job_id: str
    table_id: str
    queue: QueueName
    paths: tuple[str, ...]
