"""The interface for files submitted to the ingest batcher, and the jobs made of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Protocol

from sleeper.model.jobs.messages import QueueName
from sleeper.model.jobs.submitted_files import SubmittedFile, UnsentJob


class BatcherStore(Protocol):
    """The files of one instance's batcher. Safe for threads and for several processes.

    A job is created in one durable step: its files are assigned, and the job is marked as unsent.
    The process that sends it to its queue then marks it as sent. If that process is killed in
    between, the job is sent again, which is safe because of its id.

    Every method raises `StorageFailed` when the store cannot be reached.
    """

    def save(self, files: Sequence[SubmittedFile]) -> None:
        """Add pending files, all or none; replace those that are pending already (rule BAT-2)."""
        ...

    def pending(self) -> list[SubmittedFile]:
        """Return the files without a job, oldest first."""
        ...

    def newest(self) -> Iterator[SubmittedFile]:
        """Yield all files, newest first."""
        ...

    def assign(
        self, job_id: str, files: Sequence[SubmittedFile], queue: QueueName
    ) -> list[SubmittedFile]:
        """Assign pending files of one table to a new job for `queue`.

        Args:
            job_id: A fresh id: no job had it before.
            files: What is to be in the job, as `pending` returned it.
            queue: Where the job is to be sent.

        Returns:
            The files of the job, without those that are no longer pending or were submitted again
            since. If none is left, no job is created.
        """
        ...

    def unsent(self) -> list[UnsentJob]:
        """Return the jobs that are not marked as sent, oldest first."""
        ...

    def note_sent(self, job_id: str) -> None:
        """Mark a job as sent to its queue."""
        ...

    def delete_tables_except(self, table_ids: Iterable[str]) -> int:
        """Delete files and unsent jobs of tables other than these; return how many files."""
        ...

    def delete_pending(self) -> int:
        """Delete all files without a job, and return how many."""
        ...

    def delete_expired(self, now: datetime) -> int:
        """Delete files that expired before `now`, unless their job is unsent; return how many."""
        ...
