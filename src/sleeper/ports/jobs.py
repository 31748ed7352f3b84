"""The interface for all stores of jobs of an instance: queues, tracker and batcher store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Protocol

from sleeper.model.jobs.events import JobEvent, JobFilter, TaskEvent
from sleeper.model.jobs.kinds import JobKind, QueueName
from sleeper.model.jobs.messages import DeadLetter, NewMessage, QueueDepth, ReceivedMessage
from sleeper.model.jobs.submitted_files import SubmittedFile, UnsentJob

# ---------------------------------------------------------------- job queue
#
# The interface of message queues with at-least-once delivery, like SQS.


class JobQueue(Protocol):
    """One queue with its dead letters. Safe for threads and for several processes.

    A message is delivered until it is deleted: to one receiver at a time, and again after its
    visibility timeout. So handling a message must be idempotent. Without FIFO, messages come
    roughly in the order in which they were sent; the order is not guaranteed.

    A receipt becomes stale when its message is delivered again or deleted. Not every queue can
    tell every stale receipt (SQS cannot): where it says that it is stale, it is; where a method
    returns True, the message may have been delivered again since.

    Every method raises `StorageFailed` (`StorageFull` if a disk is full) if the queue cannot be
    reached; the operation may or may not have been done.
    """

    def send(self, messages: Sequence[NewMessage]) -> None:
        """Store messages durably, in order. On failure, some of them may have been stored.

        Of those that are sent again a power cut may take the last, with all that was sent to or
        deleted from any queue of the same stores after them.

        Raises:
            BadRequest: a body is empty or too large, a delay is too long, or the queue does not
                accept the message's group. No message was stored.
        """
        ...

    def receive(
        self, count_max: int = 1, *, wait_s: float = 0.0, visibility_s: float | None = None
    ) -> list[ReceivedMessage]:
        """Return messages, hidden from other receivers for a time; an empty list if none is ready.

        Args:
            count_max: Maximum number; 1 to 100. Fewer may be returned though more are ready.
            wait_s: How long to wait for the first one; 0 to 20 seconds.
            visibility_s: How long they are hidden, at most 12 hours; None for the queue's
                default.

        Raises:
            BadRequest: an argument is out of its range.
        """
        ...

    def extend(self, receipt: str, visibility_s: float) -> bool:
        """Hide a message for a number of seconds from now on; False if the receipt is stale."""
        ...

    def release(self, receipt: str, delay_s: float = 0.0, *, counted: bool = True) -> bool:
        """Make a message visible again after a delay; False if the receipt is stale.

        Args:
            receipt: The receipt.
            delay_s: Seconds until it is visible; 0 to 12 hours.
            counted: False: this delivery is not counted, so it does not bring the message nearer
                to the dead letters. For a receiver that was asked to end. A FIFO queue may count
                it all the same, and so may a delay of more than 15 minutes.
        """
        ...

    def delete(self, receipts: Sequence[str]) -> list[bool]:
        """Delete handled messages; return False for each whose receipt is stale.

        A stale receipt deletes nothing: the message was delivered again since. A receipt
        whose visibility has ended becomes stale only then; in a FIFO queue it may be at once.
        """
        ...

    def bury(self, receipt: str, reason: str) -> bool:
        """Make a message a dead letter at once; False if the receipt is stale.

        For messages that this process received lately: of older ones a queue may not know enough
        any more, and then says that they are stale.
        """
        ...

    def dead_letters(self, count_max: int = 100) -> list[DeadLetter]:
        """Return dead letters, oldest first, without removing them.

        They may be hidden from other callers for a moment.
        """
        ...

    def dead_letter(self, message_id: str) -> DeadLetter | None:
        """Return one dead letter; None without it, and always where a queue cannot look by id."""
        ...

    def redrive(self, message_ids: Sequence[str] | None = None) -> int:
        """Move dead letters back to the queue, as if never received; return how many.

        Args:
            message_ids: The dead letters to move; None for all.
        """
        ...

    def delete_dead_letters(self, message_ids: Sequence[str] | None = None) -> int:
        """Delete dead letters permanently; return how many. None deletes all."""
        ...

    def ready(self) -> int:
        """Return how many messages wait, as in `depth`, in one request."""
        ...

    def depth(self) -> QueueDepth:
        """Return the number of messages; approximate, where others use the queue meanwhile."""
        ...


# ---------------------------------------------------------------- job tracker
#
# The interface of the job tracker: events of jobs and tasks, kept for a time, for reports only.
#
# If a table's log records a job id, the job is finished, whatever the tracker shows. So an adapter
# may lose events when its machine crashes, but must not invent or change any.


class JobTracker(Protocol):
    """Events of one instance's jobs and tasks. Safe for threads and for several processes.

    Every method raises `StorageFailed` if the tracker cannot be reached.
    """

    def record(self, events: Sequence[JobEvent | TaskEvent], *, expires: datetime) -> None:
        """Store events until they expire. An event that is recorded twice is stored once.

        Args:
            events: The events, in order.
            expires: When they may be deleted (aware, UTC). Later settings do not change it.
        """
        ...

    def events_of_job(self, kind: JobKind, job_id: str) -> list[JobEvent]:
        """Return the events of a job, in the order they were recorded; none if it is unknown.

        The same id in two tables is two jobs: the events of both are returned, and `table_id`
        tells them apart.
        """
        ...

    def jobs(self, wanted: JobFilter) -> Iterator[list[JobEvent]]:
        """Yield the events of each matching job, job by job, the one with the newest event first.

        Only one page of jobs is in memory at a time.
        """
        ...

    def tasks(self, kind: JobKind | None = None) -> Iterator[list[TaskEvent]]:
        """Yield the events of each task, the one that started last first."""
        ...

    def delete_expired(self, now: datetime) -> int:
        """Delete events that expired before `now`; return how many."""
        ...


# ---------------------------------------------------------------- batcher store
#
# The interface for files submitted to the ingest batcher, and the jobs made of them.


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

    def reopen(self, job_id: str, paths: Sequence[str], queue: QueueName) -> int:
        """Have a job that was sent be sent again, with some of its files; return how many.

        Its other files are forgotten. A job that is not sent yet, or has none of these files,
        stays as it is: then none is returned.

        Args:
            job_id: The job.
            paths: Its files that are to be in it.
            queue: Where it is to be sent.
        """
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


class JobStores(Protocol):
    """The stores that jobs need in addition to tables."""

    @property
    def are_charged(self) -> bool:
        """Whether each request costs money, so that nobody should look more often than needed."""
        ...

    @property
    def tracker(self) -> JobTracker:
        """The tracker of jobs and tasks."""
        ...

    @property
    def batcher(self) -> BatcherStore:
        """The store of files submitted to the ingest batcher."""
        ...

    def queue(self, name: QueueName) -> JobQueue:
        """Return one of the instance's queues."""
        ...

    def erase_deleted(self) -> None:
        """Overwrite what was deleted, where a storage keeps it until it needs the place.

        Raises:
            StorageFailed: it may be kept.
        """
        ...

    def close(self) -> None:
        """Close open connections."""
        ...


# ---------------------------------------------------------------- results queue
#
# The interface of queues that take the rows of queries: those of whoever asks.


class ResultsQueue(Protocol):
    """Sends messages to queues that are named by their URLs. Safe for threads."""

    def send(self, url: str, body: str) -> None:
        """Send a message of at most 256 KiB. It may arrive twice.

        Raises:
            StorageFailed: the queue is missing or denied, or does not answer: the message may or
                may not have been sent.
        """
        ...
