"""Which jobs and tasks fall into a period of time, and which states are asked for (rule TRK-7)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sleeper.model.jobs.statuses import JobState, JobStatus
from sleeper.model.jobs.tasks import TaskStatus

UNFINISHED_FOR: Final = timedelta(days=1)
"""What has no end is taken to have ended so long after its start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeWindow:
    """A period of time, aware and UTC; without a bound where that is None.

    Attributes:
        since: What ended before this is not in it.
        until: What started at this time or later is not in it.
    """

    since: datetime | None = None
    until: datetime | None = None

    def overlaps(self, start: datetime, end: datetime | None) -> bool:
        """Return whether something was under way within the period.

        Args:
            start: When it started.
            end: When it ended; None where it has not, or it is unknown.
        """
        latest = start + UNFINISHED_FOR if end is None else end
        starts_in_time = self.until is None or start < self.until
        return starts_in_time and (self.since is None or latest >= self.since)

    def has_job(self, status: JobStatus) -> bool:
        """Return whether a job was under way within the period."""
        starts = (status.created, status.accepted, status.started)
        start = min((at for at in starts if at), default=status.updated)
        return self.overlaps(start, status.finished)

    def has_task(self, status: TaskStatus) -> bool:
        """Return whether a task was under way within the period."""
        start = status.started or status.finished
        return start is not None and self.overlaps(start, status.finished)


def chosen(
    statuses: Iterable[JobStatus],
    *,
    states: Collection[JobState] = (),
    only_unfinished: bool = False,
    window: TimeWindow | None = None,
) -> Iterator[JobStatus]:
    """Yield those of the jobs that fit every condition (rule TRK-7).

    Args:
        statuses: Statuses of jobs.
        states: States to choose from, such as REJECTED for jobs that are invalid; none for all.
        only_unfinished: Leave out those of which nothing can come any more.
        window: Only those that were under way in this period.
    """
    for status in statuses:
        if states and status.state not in states:
            continue
        if only_unfinished and not status.is_unfinished:
            continue
        if window is None or window.has_job(status):
            yield status
