"""Files that a job has written become part of the table, once, or are given up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from sleeper.errors import (
    CommitContended,
    CommitRefused,
    JobAlreadyCommitted,
    StorageFailed,
)
from sleeper.model.files import FileReference
from sleeper.state.committed_jobs import CommittedJob, JobRecord
from sleeper.state.state_store import StateStore
from sleeper.state.transactions.files import AddFiles


def add_files(
    references: Sequence[FileReference],
    job: CommittedJob | None,
    *,
    store: StateStore,
    discard: Callable[[], None],
) -> int | JobRecord:
    """Commit references to new files, and return the transaction's number.

    Where the same job was committed meanwhile by somebody faster, return the record of that.

    Args:
        references: Of files that are written and durable.
        job: The job that wrote them, if it has an id; its work is done once.
        store: The table's state.
        discard: Deletes the files; called when they are certainly not in the table.

    Raises:
        CommitRefused, CommitContended, StorageFailed: the table is as it was.
        CommitUnknown: they may be in the table, so they stay where they are.
    """
    try:
        return store.commit(AddFiles(references=tuple(references), job=job)).number
    except JobAlreadyCommitted:
        discard()
        assert job is not None
        done = store.refresh().jobs.find(job.job_id)
        assert done is not None
        return done
    except (CommitRefused, CommitContended, StorageFailed):
        discard()
        raise


def committed_job(
    job_id: str | None, keep_until: datetime, *, rows_read: int, rows_written: int
) -> CommittedJob | None:
    """Return what is remembered of a job; None for work without a name."""
    if job_id is None:
        return None
    return CommittedJob(
        job_id=job_id, keep_until=keep_until, rows_read=rows_read, rows_written=rows_written
    )
