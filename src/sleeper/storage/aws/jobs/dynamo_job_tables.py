"""The DynamoDB tables of jobs, tasks and submitted files."""

from __future__ import annotations

from typing import Final

from sleeper.model.jobs.events import JobKind
from sleeper.storage.aws.dynamo_making import DynamoTable

NEWEST_OF_ALL: Final = "newest-of-all"
"""The index of jobs by their newest event."""

NEWEST_OF_TABLE: Final = "newest-of-table"
"""The index of each Sleeper table's jobs by their newest event."""

BY_RECEIVED: Final = "by-received"
"""The index of submitted files by the time they were submitted."""

SUBMITTED_FILES: Final = DynamoTable(
    "ingest-batcher-store",
    (("JobId", "S"), ("FilePath", "S")),
    "ExpiryTime",
    ((BY_RECEIVED, (("Files", "S"), ("Received", "N"))),),
)
BATCHER_JOBS: Final = DynamoTable(
    "ingest-batcher-jobs", (("EntryKind", "S"), ("EntryId", "S")), "ExpiryTime"
)


def job_updates(kind: JobKind) -> DynamoTable:
    """Return the table of events of jobs."""
    return DynamoTable(
        f"{kind}-job-updates", (("TableId", "S"), ("JobIdAndUpdate", "S")), "ExpiryDate"
    )


def job_lookup(kind: JobKind) -> DynamoTable:
    """Return the table with an item for each job."""
    return DynamoTable(
        f"{kind}-job-lookup",
        (("JobId", "S"), ("TableId", "S")),
        "ExpiryDate",
        (
            (NEWEST_OF_ALL, (("Jobs", "S"), ("Newest", "N"))),
            (NEWEST_OF_TABLE, (("TableId", "S"), ("Newest", "N"))),
        ),
    )


def task_status(kind: JobKind) -> DynamoTable:
    """Return the table of events of tasks."""
    return DynamoTable(f"{kind}-task-status", (("TaskId", "S"), ("UpdateTime", "N")), "ExpiryDate")
