"""The status of a task, a worker process, folded from its events (rule TRK-6)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from sleeper.html.values import NotebookHtml
from sleeper.model.jobs.events import TaskEvent
from sleeper.model.jobs.kinds import JobKind
from sleeper.model.jobs.statuses import rate, seconds_between


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStatus(NotebookHtml):
    """What a task did. What only its end tells is None before that.

    Attributes:
        kind: What its jobs do.
        task_id: The task.
        host: The machine it runs on.
        pid: Its process id there.
        started: When it started (aware, UTC); None where that event was lost.
        finished: When it ended; None while it runs, and where it was killed.
        jobs: Runs of jobs that it ended, well or badly.
        rows_read: Rows they read.
        rows_written: Rows they wrote.
        busy_s: Seconds it spent on them.
    """

    kind: JobKind
    task_id: str
    host: str
    pid: int
    started: datetime | None
    finished: datetime | None
    jobs: int | None
    rows_read: int | None
    rows_written: int | None
    busy_s: float | None

    @property
    def is_finished(self) -> bool:
        """True once it said that it ended."""
        return self.finished is not None

    @property
    def seconds(self) -> float | None:
        """How long it ran."""
        return seconds_between(self.started, self.finished)

    @property
    def rows_read_per_s(self) -> float | None:
        """Rows read a second, of the seconds spent on jobs."""
        return rate(self.rows_read, self.busy_s)

    @property
    def rows_written_per_s(self) -> float | None:
        """Rows written a second, of the seconds spent on jobs."""
        return rate(self.rows_written, self.busy_s)


def task_status(events: Iterable[TaskEvent]) -> TaskStatus:
    """Return the status of a task.

    Args:
        events: Of one task: all that are known, in any order; one at least.

    Raises:
        ValueError: there is none, or they are of several tasks.
    """
    known = sorted(set(events), key=lambda event: (event.at, event.is_finished, repr(event)))
    tasks = {(event.kind, event.task_id) for event in known}
    if len(tasks) != 1:
        raise ValueError(f"the events of one task make a status, not those of {len(tasks)} tasks")
    first = known[0]
    started = next((event.at for event in known if not event.is_finished), None)
    end = next((event for event in reversed(known) if event.is_finished), None)
    return TaskStatus(
        kind=first.kind,
        task_id=first.task_id,
        host=first.host,
        pid=first.pid,
        started=started,
        finished=end.at if end else None,
        jobs=end.jobs if end else None,
        rows_read=end.rows_read if end else None,
        rows_written=end.rows_written if end else None,
        busy_s=end.busy_s if end else None,
    )
