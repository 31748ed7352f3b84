"""The tracker: events of jobs and tasks, kept for a time. It is a view, never the truth.

A job whose id a table's log has is finished, whatever the tracker says. An adapter may therefore
lose events in a crash of its machine, but must not invent or change any.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Protocol

from sleeper.model.jobs.events import JobEvent, JobFilter, JobKind, TaskEvent


class JobTracker(Protocol):
    """Events of one instance's jobs and tasks. Safe for threads and for several processes.

    Every method raises `StorageFailed` when the tracker cannot be reached.
    """

    def record(self, events: Sequence[JobEvent | TaskEvent], *, expires: datetime) -> None:
        """Keep events until they expire. The same event twice is kept once.

        Args:
            events: What happened, in order.
            expires: When they may be forgotten (aware, UTC): fixed now, whatever is set later.
        """
        ...

    def events_of_job(self, kind: JobKind, job_id: str) -> list[JobEvent]:
        """Return what happened to a job, in the order it was recorded; none when unknown.

        The same id in two tables is two jobs: their events come together, told by `table_id`.
        """
        ...

    def jobs(self, wanted: JobFilter) -> Iterator[list[JobEvent]]:
        """Yield all events of each job that fits, job by job, that of the newest event first.

        Memory is bounded by one page of jobs, however many there are.
        """
        ...

    def tasks(self, kind: JobKind | None = None) -> Iterator[list[TaskEvent]]:
        """Yield the events of each task, that of the newest start first."""
        ...

    def delete_expired(self, now: datetime) -> int:
        """Forget events that expired before `now`, and return how many."""
        ...
