"""How often `sleeper serve` looks at queues, and when its timers run.

It looks seldom where a look costs money and nothing waits.
"""

from __future__ import annotations

import pytest

from sleeper.errors import StorageFailed
from sleeper.workers.serve.job_services import JobServices, Timer, Timers
from tests.unit.workers.clocks import clock_of


class Fleet:
    """A fleet that is busy at some of its looks."""

    def __init__(self, busy):
        self.running, self.busy = {"ingest": 0}, list(busy)

    def look(self):
        return self.busy.pop(0)

    def stop(self, patience_s):
        pass


class Stop:
    """Ends everything after so many waits, and remembers how long they were."""

    def __init__(self, looks):
        self.looks, self.waits = looks, []

    def wait(self, seconds):
        self.waits.append(seconds)
        return len(self.waits) > self.looks


def waits(busy, longest_s):
    """How long is waited after each look."""
    stop = Stop(len(busy))
    services = JobServices(
        Fleet(busy),
        timers=None,
        stop=stop,
        note_work=lambda: None,
        look_s=0.5,
        look_max_s=lambda: longest_s,
    )
    services._run_fleet()
    return stop.waits[1:]


@pytest.mark.parametrize(
    ("busy", "expected"),
    [
        ([False] * 7, [1, 2, 4, 8, 16, 20, 20]),
        ([True] * 3, [0.5, 0.5, 0.5]),
        ([False, False, True, False], [1, 2, 0.5, 1]),
    ],
)
def test_looks_are_rarer_while_nothing_is_to_do(busy, expected):
    """Given queues that charge for a look, then the next is later, until there is a job."""
    assert waits(busy, longest_s=20) == expected


def test_looks_that_cost_nothing_are_as_frequent_as_ever():
    """So a job in a file is begun at once."""
    assert waits([False] * 4, longest_s=0.5) == [0.5] * 4


def test_each_runs_at_once_and_then_after_its_period():
    """The wait is that for the next one that is due."""
    now, ran = [0.0], []
    timers = Timers(
        [Timer("a", 10, lambda: ran.append("a")), Timer("b", 3, lambda: ran.append("b"))],
        clock_of(lambda: now[0]),
    )

    assert timers.run_due() == 3
    now[0] = 3
    assert timers.run_due() == 3
    now[0] = 10

    timers.run_due()
    assert ran == ["a", "b", "b", "a", "b"]


def test_one_that_fails_is_told_and_comes_again(caplog):
    """The others run, and it is tried again after its period."""
    now, ran = [0.0], []

    def fail():
        ran.append("a")
        raise StorageFailed("locked")

    timers = Timers(
        [Timer("making jobs", 1, fail), Timer("b", 1, lambda: ran.append("b"))],
        clock_of(lambda: now[0]),
    )
    timers.run_due()
    now[0] = 1
    timers.run_due()

    assert ran == ["a", "b", "a", "b"]
    assert "making jobs failed, and is tried again later: locked" in caplog.text


def test_what_was_done_is_logged(caplog):
    """In a line, where there was something to do."""
    caplog.set_level("INFO")

    Timers(
        [Timer("a", 1, lambda: "made 3 jobs"), Timer("b", 1, lambda: None)], clock_of(lambda: 0.0)
    ).run_due()

    assert caplog.messages == ["made 3 jobs"]


class PanicException(BaseException):
    """What Python gets where code in Rust failed that should not."""


@pytest.mark.parametrize("error", [PanicException("unwrap"), TypeError("x")], ids=repr)
def test_an_unexpected_error_keeps_no_other_timer_waiting(error, caplog):
    """It is logged with its trace, and the timer is tried again after its period."""
    now, ran = [0.0], []

    def fail():
        ran.append("a")
        raise error

    timers = Timers(
        [Timer("a", 1, fail), Timer("b", 1, lambda: ran.append("b"))], clock_of(lambda: now[0])
    )
    timers.run_due()
    now[0] = 1
    timers.run_due()

    assert ran == ["a", "b", "a", "b"]
    assert [record.exc_info[1] for record in caplog.records] == [error, error]


def test_ctrl_c_ends_the_timers():
    """It is no failure of a timer."""

    def fail():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Timers([Timer("a", 1, fail)], clock_of(lambda: 0.0)).run_due()
