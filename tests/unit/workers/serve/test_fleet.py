"""The fleet: how many workers it starts, when it rests, and how it ends them.

And for how many compaction jobs workers are started, and when again.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from sleeper.errors import StorageFailed
from sleeper.model.formats.compaction_job import CompactionJob
from sleeper.workers.serve.fleet import WaitingCompactions, WorkerFleet, workers_to_start
from tests.unit.workers.clocks import clock_of


@dataclass
class Worker:
    """A worker that ends when it is told to, and may be deaf to it."""

    pid: int
    code: int | None = None
    deaf: bool = False
    told: list[str] = field(default_factory=list)

    def poll(self):
        return self.code

    def send_signal(self, sig):
        self.told.append(signal.Signals(sig).name)
        if not self.deaf:
            self.code = 0

    def kill(self):
        self.told.append("killed")
        self.code = -9

    def wait(self, timeout=None):
        if self.code is None:
            raise TimeoutError(f"still there after {timeout}")
        return self.code


@dataclass
class World:
    """A fleet with a clock that is set by hand, and queues with so many messages."""

    ready: dict[str, int]
    limits: dict[str, int]
    now: float = 100.0
    workers: list[Worker] = field(default_factory=list)
    failure: Exception | None = None
    cannot_start: Exception | None = None

    def __post_init__(self):
        self.fleet = WorkerFleet(
            start=self.start,
            ready=self.look,
            workers_max=self.limits,
            clock=clock_of(lambda: self.now),
        )

    def start(self, kind):
        if self.cannot_start:
            raise self.cannot_start
        self.workers.append(Worker(pid=len(self.workers)))
        return self.workers[-1]

    def look(self, kind):
        if self.failure:
            raise self.failure
        return self.ready[kind]

    def pass_by(self, seconds):
        self.now += seconds
        self.fleet.look()


def test_without_messages_no_worker_is_started():
    """An idle service has no processes."""
    world = World({"ingest": 0}, {"ingest": 4})

    world.fleet.look()

    assert world.fleet.running == {"ingest": 0}


def test_a_worker_is_started_for_each_message_up_to_the_limit():
    """Each kind has its own limit."""
    world = World({"ingest": 9, "query": 1}, {"ingest": 2, "query": 3})

    world.fleet.look()
    world.pass_by(10)

    assert world.fleet.running == {"ingest": 2, "query": 2}


def test_a_worker_that_was_just_started_counts_as_waiting_for_the_message():
    """Given one message and a worker that starts for it, then no second one is started at once."""
    world = World({"ingest": 1}, {"ingest": 4})

    world.fleet.look()
    world.pass_by(0.5)

    assert world.fleet.running == {"ingest": 1}


def test_a_worker_that_ended_makes_room():
    """One that ended well is no failure."""
    world = World({"ingest": 9}, {"ingest": 1})
    world.fleet.look()

    world.workers[0].code = 0
    world.pass_by(5)

    assert [worker.code for worker in world.workers] == [0, None]


def test_workers_that_keep_failing_are_not_started_for_a_while(caplog):
    """Given workers that die at their start, then each further failure doubles the rest."""
    world = World({"ingest": 1}, {"ingest": 1})
    for _ in range(30):
        world.pass_by(1)
        for worker in world.workers:
            worker.code = 1

    assert 5 <= len(world.workers) <= 9
    assert "no ingest worker is started for 8 s: they keep failing" in caplog.text

    world.workers[-1].code = 0
    world.pass_by(60)
    world.workers[-1].code = 0
    world.pass_by(3)
    assert world.fleet.running == {"ingest": 1}


def test_a_machine_that_cannot_start_processes_is_told_and_tried_again(caplog):
    """Given no memory for a process, then the fleet goes on, and starts it later."""
    world = World({"ingest": 1}, {"ingest": 1}, cannot_start=OSError("no memory"))
    world.fleet.look()
    world.cannot_start = None

    world.pass_by(1)

    assert "no ingest worker can be started now: no memory" in caplog.text
    assert world.fleet.running == {"ingest": 1}


def test_a_queue_that_cannot_be_looked_at_stops_no_other(caplog):
    """A locked or full disk is told, and tried again."""
    world = World({"ingest": 1}, {"ingest": 1}, failure=StorageFailed("disk full"))
    world.fleet.look()
    world.failure = None
    world.pass_by(1)

    assert "the ingest queue cannot be looked at now: disk full" in caplog.text
    assert world.fleet.running == {"ingest": 1}


@pytest.mark.parametrize("deaf", [False, True])
def test_workers_are_asked_to_end_and_then_killed(deaf):
    """One that does not end in time is killed: its message comes again."""
    world = World({"ingest": 2}, {"ingest": 2})
    world.fleet.look()
    world.workers[0].deaf = deaf

    world.fleet.stop(20)

    assert world.workers[0].told == ["SIGTERM", *(["killed"] if deaf else [])]
    assert world.workers[1].told == ["SIGTERM"]
    assert world.fleet.running == {"ingest": 0}


@pytest.mark.parametrize(
    ("ready", "running", "idle", "limit", "more"),
    [
        (0, 0, 0, 200, 0),
        (5, 0, 0, 200, 5),
        (5, 3, 0, 200, 5),
        (5, 198, 0, 200, 2),
        (5, 200, 0, 200, 0),
        (5, 250, 0, 200, 0),
        (5, 2, 2, 200, 3),
        (1, 2, 2, 200, 0),
        (5, 2, 2, 3, 1),
        (1000, 300, 0, None, 1000),
    ],
)
def test_one_worker_a_message_within_the_limit(ready, running, idle, limit, more):
    """Messages that can be received, less workers that wait for one (ING-15)."""
    assert workers_to_start(ready=ready, running=running, idle=idle, workers_max=limit) == more


class Planned:
    def __init__(self):
        self.now = 1000.0
        self.waiting = WaitingCompactions(clock_of(lambda: self.now))


@pytest.fixture
def planned():
    return Planned()


def jobs(*names):
    """A job for each string: its letters are its files."""
    return [
        CompactionJob(job_id=f"job-{name}", partition_id="root", inputs=tuple(name))
        for name in names
    ]


def test_each_job_asks_for_a_worker_once(planned):
    """The jobs of all tables are counted; the worker that is started does all of them."""
    planned.waiting.note_planned("one", jobs("ab", "cd"))
    planned.waiting.note_planned("two", jobs("e"))

    assert (planned.waiting.take(), planned.waiting.take()) == (3, 0)


def test_a_table_that_wants_nothing_any_more_asks_for_no_worker(planned):
    """Others were faster."""
    planned.waiting.note_planned("one", jobs("ab"))
    planned.waiting.note_planned("one", [])

    assert planned.waiting.take() == 0


def test_files_that_stay_ask_less_and_less_often(planned):
    """Given jobs that always fail, then workers are started for them after ever longer pauses."""
    taken = []
    for minute in range(120):
        planned.now = 1000.0 + 60 * minute
        planned.waiting.note_planned("one", jobs("ab"))
        if planned.waiting.take():
            taken.append(minute)

    pauses = [after - before for before, after in pairwise(taken)]
    assert pauses[:4] == [1, 2, 4, 8]
    assert max(pauses) == 15


def test_new_files_ask_at_once(planned):
    """Whatever failed before."""
    for minute in (0, 1, 2):
        planned.now = 1000.0 + 60 * minute
        planned.waiting.note_planned("one", jobs("ab"))
        planned.waiting.take()
    planned.waiting.note_planned("one", jobs("ab", "cd"))

    assert planned.waiting.take() == 2


def test_a_pause_is_asked_about_only_where_jobs_wait(planned):
    """The question goes to the storage: an idle instance in a bucket makes no requests for it."""
    asked = []

    def paused():
        asked.append(1)
        return len(asked) == 1

    assert planned.waiting.take(paused) == 0
    assert asked == []

    planned.waiting.note_planned("one", jobs("ab"))

    assert [planned.waiting.take(paused) for _ in range(3)] == [0, 1, 0]
    assert len(asked) == 2
