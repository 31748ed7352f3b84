"""For how many compaction jobs serve starts workers, and when it does so again."""

from __future__ import annotations

from itertools import pairwise

import pytest

from sleeper.model.formats.compaction_job import CompactionJob
from sleeper.workers.serve.waiting_compactions import WaitingCompactions


class World:
    def __init__(self):
        self.now = 1000.0
        self.waiting = WaitingCompactions(lambda: self.now)


@pytest.fixture
def world():
    return World()


def jobs(*names):
    """A job for each string: its letters are its files."""
    return [
        CompactionJob(job_id=f"job-{name}", partition_id="root", inputs=tuple(name))
        for name in names
    ]


def test_each_job_asks_for_a_worker_once(world):
    """The jobs of all tables are counted; the worker that is started does all of them."""
    world.waiting.tell("one", jobs("ab", "cd"))
    world.waiting.tell("two", jobs("e"))

    assert (world.waiting.take(), world.waiting.take()) == (3, 0)


def test_a_table_that_wants_nothing_any_more_asks_for_no_worker(world):
    """Others were faster."""
    world.waiting.tell("one", jobs("ab"))
    world.waiting.tell("one", [])

    assert world.waiting.take() == 0


def test_files_that_stay_ask_less_and_less_often(world):
    """Given jobs that always fail, then workers are started for them after ever longer pauses."""
    taken = []
    for minute in range(120):
        world.now = 1000.0 + 60 * minute
        world.waiting.tell("one", jobs("ab"))
        if world.waiting.take():
            taken.append(minute)

    pauses = [after - before for before, after in pairwise(taken)]
    assert pauses[:4] == [1, 2, 4, 8]
    assert max(pauses) == 15


def test_new_files_ask_at_once(world):
    """Whatever failed before."""
    for minute in (0, 1, 2):
        world.now = 1000.0 + 60 * minute
        world.waiting.tell("one", jobs("ab"))
        world.waiting.take()
    world.waiting.tell("one", jobs("ab", "cd"))

    assert world.waiting.take() == 2


def test_a_pause_is_asked_about_only_where_jobs_wait(world):
    """The question goes to the storage: an idle instance in a bucket makes no requests for it."""
    asked = []

    def paused():
        asked.append(1)
        return len(asked) == 1

    assert world.waiting.take(paused) == 0
    assert asked == []

    world.waiting.tell("one", jobs("ab"))

    assert [world.waiting.take(paused) for _ in range(3)] == [0, 1, 0]
    assert len(asked) == 2
