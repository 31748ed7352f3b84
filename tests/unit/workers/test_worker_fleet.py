"""The fleet: how many workers it starts, when it rests, and how it ends them."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field

import pytest

from sleeper.errors import StorageFailed
from sleeper.workers.serve.fleet import WorkerFleet


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
            ticks_s=lambda: self.now,
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
