"""The interface of the job tracker: events of jobs and tasks, kept for a time, for reports only.

If a table's log records a job id, the job is finished, whatever the tracker shows. So an adapter
may lose events when its machine crashes, but must not invent or change any.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Protocol

from sleeper.model.jobs.events import JobEvent, JobFilter, JobKind, TaskEvent


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
