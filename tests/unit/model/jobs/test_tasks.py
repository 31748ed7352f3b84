"""Statuses of tasks: worker processes, what they did and how quickly."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from sleeper.model.jobs.events import TaskEvent
from sleeper.model.jobs.kinds import JobKind
from sleeper.model.jobs.tasks import task_status

START = datetime(2026, 6, 1, tzinfo=UTC)


def event(seconds: float, *, end: bool, **more) -> TaskEvent:
    """An event of the task a."""
    values = {"kind": JobKind.INGEST, "task_id": "a", "host": "here", "pid": 7, **more}
    return TaskEvent(at=START + timedelta(seconds=seconds), is_finished=end, **values)


STARTED = event(0, end=False)
FINISHED = event(100, end=True, jobs=4, rows_read=80, rows_written=40, busy_s=20.0)


def test_a_task_that_runs():
    """It says where it runs; what it did is not known yet (TRK-6)."""
    status = task_status([STARTED])

    assert (status.host, status.pid, status.started) == ("here", 7, START)
    assert (status.is_finished, status.jobs, status.rows_read_per_s) == (False, None, None)


@pytest.mark.parametrize("events", [[STARTED, FINISHED], [FINISHED, STARTED, FINISHED, STARTED]])
def test_a_task_that_ended(events):
    """Rates are by the seconds that jobs took, in whatever order events come (TRK-6)."""
    status = task_status(events)

    assert (status.is_finished, status.seconds, status.busy_s) == (True, 100, 20)
    assert (status.jobs, status.rows_read, status.rows_written) == (4, 80, 40)
    assert (status.rows_read_per_s, status.rows_written_per_s) == (4, 2)


def test_a_task_whose_start_was_lost():
    """What its end tells is kept."""
    status = task_status([FINISHED])

    assert (status.started, status.seconds, status.rows_read) == (None, None, 80)


def test_a_task_without_work_has_no_rate():
    """No time went into jobs."""
    assert task_status([STARTED, event(5, end=True)]).rows_read_per_s is None


@pytest.mark.parametrize("events", [[], [STARTED, event(0, end=False, task_id="b")]])
def test_a_status_is_of_one_task(events):
    """Of none, or of two, there is none."""
    with pytest.raises(ValueError, match="one task"):
        task_status(events)
