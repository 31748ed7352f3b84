"""Files that a job has written become part of the table, once, or are given up."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence

from sleeper.errors import (
    CommitContended,
    CommitRefused,
    CommitUnknown,
    JobAlreadyCommitted,
    StorageFailed,
)
from sleeper.model.files import FileReference
from sleeper.state.committed_jobs import CommittedJob, JobRecord
from sleeper.state.state_store import StateStore
from sleeper.state.transactions.files import AddFiles


def add_files(
    references: Sequence[FileReference],
    job: CommittedJob,
    *,
    store: StateStore,
    discard: Callable[[], None],
) -> int | JobRecord:
    """Commit references to new files, and return the transaction's number.

    Where the same job was committed meanwhile by somebody faster, return the record of that.

    Args:
        references: Of files that are written and durable.
        job: The job that wrote them; its work is done once.
        store: The table's state.
        discard: Deletes the files; called when they are certainly not in the table.

    Raises:
        CommitRefused, CommitContended, StorageFailed: the table is as it was.
        CommitUnknown: they may be in the table, so they stay where they are. The error names the
            job id that finds out.
    """
    try:
        return store.commit(AddFiles(references=tuple(references), job=job)).number
    except JobAlreadyCommitted:
        discard()
        done = store.refresh().jobs.find(job.job_id)
        assert done is not None
        return done
    except CommitUnknown as error:
        raise CommitUnknown(
            f"{error} Its job id is {job.job_id}: run it again with job_id={job.job_id!r}, on the "
            f"command line --job-id {shlex.quote(job.job_id)}."
        ) from error
    except (CommitRefused, CommitContended, StorageFailed):
        discard()
        raise
