"""Which jobs and tasks a report shows: by time, by state."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from sleeper.model.jobs.events import JobEvent, JobEventType, TaskEvent
from sleeper.model.jobs.kinds import JobKind
from sleeper.model.jobs.statuses import JobState, JobStatus, job_status
from sleeper.model.jobs.tasks import task_status
from sleeper.model.jobs.time_windows import TimeWindow, chosen

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
WINDOW = TimeWindow(since=NOON, until=NOON + HOUR)


def job(job_id: str, *happened: tuple[JobEventType, float]) -> JobStatus:
    """A job to which something happened some hours after noon, in one run."""
    return job_status(
        JobEvent(
            kind=JobKind.INGEST,
            table_id="t",
            job_id=job_id,
            type=what,
            at=NOON + hours * HOUR,
            run_id="r",
        )
        for what, hours in happened
    )


STARTED, FINISHED, FAILED = JobEventType.STARTED, JobEventType.FINISHED, JobEventType.FAILED


@pytest.mark.parametrize(
    ("start", "end", "inside"),
    [
        (-2, -1, False),
        (-2, 0, True),
        (-2, 0.5, True),
        (-2, 5, True),
        (0.2, 0.4, True),
        (0.99, 5, True),
        (1, 5, False),
        (2, 5, False),
        (-24, None, True),
        (-24.1, None, False),
        (0.99, None, True),
        (1, None, False),
    ],
)
def test_a_job_is_in_a_period_it_overlaps(start, end, inside):
    """One without an end counts for a day from its start (TRK-7)."""
    ended = [] if end is None else [(FINISHED, end)]
    status = job("j", (STARTED, start), *ended)
    hours = [start] if end is None else [start, end]
    task = task_status(
        TaskEvent(
            kind=JobKind.INGEST,
            task_id="a",
            at=NOON + at * HOUR,
            is_finished=number == 1,
            host="here",
            pid=1,
        )
        for number, at in enumerate(hours)
    )

    assert WINDOW.has_job(status) is inside
    assert WINDOW.has_task(task) is inside


def test_a_failed_job_may_go_on():
    """So it counts for a day from its start, like one that runs (TRK-7)."""
    status = job("j", (STARTED, -20), (FAILED, -19))

    assert WINDOW.has_job(status)


def test_a_period_may_be_open():
    """Without bounds, everything is in it."""
    status = job("j", (STARTED, -2000), (FINISHED, -1000))

    assert TimeWindow().has_job(status)
    assert TimeWindow(until=NOON).has_job(status)
    assert not TimeWindow(since=NOON).has_job(status)


def test_jobs_are_chosen_by_every_condition():
    """State, unfinished, period, and all of them together (TRK-7)."""
    jobs = [
        job("running", (STARTED, 0)),
        job("done", (STARTED, 0), (FINISHED, 0.5)),
        job("failed", (STARTED, 3), (FAILED, 4)),
        job("invalid", (JobEventType.REJECTED, 0)),
    ]

    def names(**conditions) -> list[str]:
        return [status.job_id for status in chosen(jobs, **conditions)]

    assert names() == ["running", "done", "failed", "invalid"]
    assert names(states=[JobState.REJECTED]) == ["invalid"]
    assert names(states=[JobState.FINISHED, JobState.IN_PROGRESS]) == ["running", "done"]
    assert names(only_unfinished=True) == ["running", "failed"]
    assert names(window=WINDOW) == ["running", "done", "invalid"]
    assert names(only_unfinished=True, window=WINDOW) == ["running"]
