"""Counts of jobs and commits, made anew once a minute at most, however often somebody asks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import field
from datetime import timedelta
from itertools import islice
from statistics import median
from threading import Lock
from typing import Final

from sleeper.jobs.instance_jobs import InstanceJobs
from sleeper.language.value_classes import dataclass
from sleeper.model.jobs.events import JobEvent, JobEventType, JobFilter, JobKind
from sleeper.model.jobs.statuses import job_status

JOBS_MAX: Final = 1000
"""So many jobs of a kind are counted, those of the newest events."""

COMMITS_FOR: Final = timedelta(minutes=10)
"""Commits are counted for so long."""

_AGE_S = 60.0


@dataclass(frozen=True, slots=True)
class JobCounts:
    """Jobs of all kinds.

    Attributes:
        states: How many jobs of each kind are in each state.
        commits: Seconds that commits of each kind took, and who made them: a worker, or the
            committer.
    """

    states: dict[JobKind, Counter[str]] = field(default_factory=dict)
    commits: dict[tuple[JobKind, str], list[float]] = field(default_factory=dict)

    def commit_seconds(self) -> Iterable[tuple[JobKind, str, float, float]]:
        """Yield kind, who commits, and the median and maximum of its commits."""
        for (kind, by), seconds in sorted(self.commits.items()):
            yield kind, by, median(seconds), max(seconds)


class JobFigures:
    """Counts the jobs in an instance's tracker. Safe for threads.

    Args:
        jobs: Returns the instance's jobs.
        ticks_s: A clock that is never set, in seconds.
    """

    def __init__(self, jobs: Callable[[], InstanceJobs], ticks_s: Callable[[], float]) -> None:
        self._jobs = jobs
        self._ticks_s = ticks_s
        self._counting = Lock()
        self._counted: tuple[JobCounts, float] | None = None

    def counts(self) -> JobCounts:
        """Return counts that are a minute old at most.

        Raises:
            StorageFailed: the tracker cannot be read.
        """
        with self._counting:
            now_s = self._ticks_s()
            if self._counted is None or now_s - self._counted[1] >= _AGE_S:
                self._counted = self._count(), now_s
            return self._counted[0]

    def _count(self) -> JobCounts:
        counts = JobCounts()
        jobs = self._jobs()
        since = jobs.recorder.now() - COMMITS_FOR
        for kind in JobKind:
            states = counts.states[kind] = Counter()
            for events in islice(jobs.stores.tracker.jobs(JobFilter(kind=kind)), JOBS_MAX):
                states[str(job_status(events).state)] += 1
                for event in events:
                    if event.commit_s is not None and event.at >= since:
                        counts.commits.setdefault((kind, _by(event)), []).append(event.commit_s)
        return counts


def _by(event: JobEvent) -> str:
    return "committer" if event.type is JobEventType.ADDED_FILES else "worker"
