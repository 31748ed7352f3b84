"""The loop that all workers share: when it takes work, waits, and ends; and what it records."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from sleeper.errors import InstanceGone, InstanceReplaced, StorageFailed
from sleeper.model.jobs.kinds import JobKind
from sleeper.workers.worker import IdleWait, TaskProcess, Worker, WorkerControl, WorkerSettings
from tests.unit.workers.clocks import SimulatedStop, clock_of

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


@dataclass
class Steps:
    """Work whose steps are written down: True for a job, False for none, or an error.

    When all were taken, the worker is asked to end.
    """

    steps: list
    idle_wait: IdleWait = field(default_factory=IdleWait)
    settings: WorkerSettings = field(default_factory=WorkerSettings)
    is_paused: list[bool] = field(default_factory=list)
    is_outdated: list[bool] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    events: list = field(default_factory=list)
    source: str = "the test"

    def __post_init__(self):
        self.left = list(self.steps)
        self.stop = SimulatedStop(wait=self.waits.append)
        self.control = WorkerControl(
            self.settings,
            self.stop,
            is_paused=lambda: bool(self.is_paused) and self.is_paused.pop(0),
            is_outdated=lambda: bool(self.is_outdated) and self.is_outdated.pop(0),
        )

    def run_next(self):
        step = self.left.pop(0)
        if not self.left:
            self.stop.set()
        if isinstance(step, BaseException):
            raise step
        if step:
            self.control.count(rows_read=3, rows_written=2, busy_s=0.5)
        return step

    def record(self, *events):
        self.events += events

    def run(self):
        task = TaskProcess("here", 7).task(JobKind.QUERY, "t-1", NOON)
        clock = clock_of(lambda: NOON.timestamp() + 60)
        return Worker(self, self.control, task=task, recorder=self, clock=clock).run()


def test_the_tracker_gets_the_start_of_a_task_and_what_it_did_in_all():
    """Given two jobs, then their rows and seconds are in the end of the task."""
    work = Steps([True, True])

    done = work.run()

    started, finished = work.events
    assert (started.is_finished, finished.is_finished) == (False, True)
    assert finished == done
    assert (done.host, done.pid, done.task_id) == ("here", 7, "t-1")
    assert (done.jobs, done.rows_read, done.rows_written, done.busy_s) == (2, 6, 4, 1.0)
    assert (done.at - started.at).total_seconds() == 60


def test_a_worker_that_is_not_reported_is_in_no_tracker():
    """Such as one that runs for one call of a function."""
    work = Steps([True], settings=WorkerSettings(is_reported=False))

    assert work.run().jobs == 1
    assert work.events == []


@pytest.mark.parametrize(
    "end",
    [KeyboardInterrupt(), SystemExit(1), InstanceGone("gone"), InstanceReplaced("replaced")],
    ids=repr,
)
def test_a_task_that_dies_is_recorded_with_what_it_did(end):
    """Given Ctrl-C or the loss of the instance, then the tracker has the jobs before it."""
    work = Steps([True, end, True])

    with pytest.raises(type(end)):
        work.run()

    assert [event.jobs for event in work.events] == [0, 1]
    assert work.waits == []


class PanicException(BaseException):
    """What Python gets where code in Rust failed that should not."""


@pytest.mark.parametrize("error", [PanicException("unwrap"), ValueError("a bug")], ids=repr)
def test_an_error_that_nobody_expects_ends_no_worker(error, caplog):
    """It is logged with its trace, and after five seconds the next piece of work is taken."""
    work = Steps([True, error, True])

    assert work.run().jobs == 2

    assert work.waits == [5.0]
    assert [record.exc_info[1] for record in caplog.records] == [error]


@pytest.mark.parametrize(
    ("settings", "taken"),
    [
        (WorkerSettings(jobs_max=2), 2),
        (WorkerSettings(until_empty=True), 3),
        (WorkerSettings(jobs_max=9, until_empty=True), 3),
        (WorkerSettings(), 7),
    ],
)
def test_a_worker_ends_by_its_settings(settings, taken):
    """After so many jobs, or when a look finds none; else when it is asked to end."""
    work = Steps([True, True, False, True, True, False, True], settings=settings)

    work.run()

    assert 7 - len(work.left) == taken


def test_an_outdated_worker_takes_nothing_more():
    """It is asked about before each piece of work."""
    work = Steps([True] * 5, is_outdated=[False, False, True])

    assert work.run().jobs == 2


def test_nothing_is_taken_while_the_instance_is_paused():
    """The worker looks again every five seconds."""
    work = Steps([True, True], is_paused=[False, True, True, False])

    assert work.run().jobs == 2
    assert work.waits == [5.0, 5.0]


@pytest.mark.parametrize(
    ("wait", "expected"),
    [
        (IdleWait(look_s=1.0), []),
        (IdleWait(first_s=1.0, max_s=1.0), [1.0, 1.0, 1.0, 1.0, 1.0]),
        (IdleWait(first_s=60.0, max_s=200.0), [60.0, 120.0, 200.0, 60.0, 120.0]),
        (IdleWait(first_s=300.0, max_s=200.0), [300.0] * 5),
    ],
)
def test_a_worker_waits_longer_while_there_is_no_work(wait, expected):
    """Up to a limit, and shortly again after a job. A queue that was waited at needs no wait."""
    work = Steps([False, False, False, True, False, False, True], idle_wait=wait)

    work.run()

    assert work.waits == expected


@pytest.mark.parametrize(
    ("wait", "looks"),
    [
        (IdleWait(look_s=1.0), 3),
        (IdleWait(first_s=1.0, max_s=1.0), 3),
        (IdleWait(first_s=2.0, max_s=8.0), 2),  # the second wait is cut short
        (IdleWait(first_s=60.0, max_s=900.0), 1),
    ],
)
def test_a_worker_ends_when_it_found_no_work_for_long_enough(wait, looks):
    """Looks and waits count. It waits no longer than that time."""
    settings = WorkerSettings(idle_max_s=3.0)
    work = Steps([False] * 9, idle_wait=wait, settings=settings)

    work.run()

    assert 9 - len(work.left) == looks
    assert sum(work.waits) + looks * wait.look_s == 3.0


def test_a_job_begins_the_idle_time_anew():
    """Given a job after two looks without one, then three more are needed for the end."""
    settings = WorkerSettings(idle_max_s=3.0)
    steps = [False, False, True, *[False] * 9]
    work = Steps(steps, idle_wait=IdleWait(look_s=1.0), settings=settings)

    work.run()

    assert len(steps) - len(work.left) == 2 + 1 + 3


def test_a_source_that_fails_is_tried_again_after_five_seconds(caplog):
    """However often: a worker that is to run for ever does so."""
    work = Steps([StorageFailed("no answer")] * 5 + [True])

    assert work.run().jobs == 1
    assert work.waits == [5.0] * 5
    assert "the test cannot be used now: no answer" in caplog.text


def test_a_worker_that_is_to_end_without_work_fails_at_the_third_failure_in_a_row():
    """It cannot know that there is none."""
    settings = WorkerSettings(until_empty=True)
    failure = StorageFailed("no answer")
    work = Steps([failure, failure, True, failure, failure, failure, True], settings=settings)

    with pytest.raises(StorageFailed, match="no answer"):
        work.run()

    assert len(work.left) == 1
