"""A tracker in dictionaries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from threading import RLock

from sleeper.model.jobs.events import JobEvent, JobFilter, JobKind, TaskEvent


class MemoryTracker:
    """Events of jobs and tasks in the memory of this process, safe for threads."""

    def __init__(self) -> None:
        self._expires: dict[JobEvent | TaskEvent, datetime] = {}  # in the order of recording
        self._lock = RLock()

    def record(self, events: Sequence[JobEvent | TaskEvent], *, expires: datetime) -> None:
        """Keep events; one that is there already stays as it is."""
        with self._lock:
            for event in events:
                self._expires.setdefault(event, expires)

    def events_of_job(self, kind: JobKind, job_id: str) -> list[JobEvent]:
        """Return what happened to a job."""
        return [each for each in self._job_events() if (each.kind, each.job_id) == (kind, job_id)]

    def jobs(self, wanted: JobFilter) -> Iterator[list[JobEvent]]:
        """Yield the events of each job that fits."""
        by_job: dict[tuple[str, str], list[JobEvent]] = {}
        for event in self._job_events():
            if event.kind is wanted.kind:
                by_job.setdefault((event.table_id, event.job_id), []).append(event)
        fitting = [events for events in by_job.values() if _fits(events, wanted)]
        return iter(sorted(fitting, key=lambda events: max(e.at for e in events), reverse=True))

    def tasks(self, kind: JobKind | None = None) -> Iterator[list[TaskEvent]]:
        """Yield the events of each task."""
        with self._lock:
            events = [each for each in self._expires if isinstance(each, TaskEvent)]
        by_task: dict[tuple[JobKind, str], list[TaskEvent]] = {}
        for event in events:
            if kind in (None, event.kind):
                by_task.setdefault((event.kind, event.task_id), []).append(event)
        return iter(
            sorted(by_task.values(), key=lambda events: min(e.at for e in events), reverse=True)
        )

    def delete_expired(self, now: datetime) -> int:
        """Forget events that have expired."""
        with self._lock:
            expired = [event for event, expires in self._expires.items() if expires < now]
            for event in expired:
                del self._expires[event]
            return len(expired)

    def _job_events(self) -> list[JobEvent]:
        with self._lock:
            return [each for each in self._expires if isinstance(each, JobEvent)]


def _fits(events: list[JobEvent], wanted: JobFilter) -> bool:
    return (
        wanted.table_id in (None, events[0].table_id)
        and (wanted.task_id is None or any(each.task_id == wanted.task_id for each in events))
        and (wanted.since is None or any(each.at >= wanted.since for each in events))
        and (wanted.until is None or any(each.at < wanted.until for each in events))
    )
