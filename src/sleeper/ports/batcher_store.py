"""Files that were submitted to the ingest batcher, and the jobs that are made of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Protocol

from sleeper.model.jobs.messages import QueueName
from sleeper.model.jobs.submitted_files import SubmittedFile, UnsentJob


class BatcherStore(Protocol):
    """The files of one instance's batcher. Safe for threads and for several processes.

    A job is made in one durable step: its files are assigned and the job is noted as unsent.
    Whoever sends it to its queue then notes that. Killed between the two, it is sent once more,
    which its id makes harmless.

    Every method raises `StorageFailed` when the store cannot be reached.
    """

    def save(self, files: Sequence[SubmittedFile]) -> None:
        """Add pending files, all or none. One that is pending already is replaced (rule BAT-2)."""
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
        """Put pending files of one table into a new job that is to be sent to `queue`.

        Args:
            job_id: A fresh id: no job had it before.
            files: What is to be in the job, as `pending` returned it.
            queue: Where the job is to be sent.

        Returns:
            Those that are in the job now: files that are pending no more, or were submitted again
            since, stay out of it. With none, there is no job.
        """
        ...

    def unsent(self) -> list[UnsentJob]:
        """Return the jobs that were not noted as sent, oldest first."""
        ...

    def note_sent(self, job_id: str) -> None:
        """Note that a job was sent to its queue."""
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
