"""Timers: when each runs, and what a failure does."""

from __future__ import annotations

import pytest

from sleeper.errors import StorageFailed
from sleeper.workers.serve.timers import Timer, Timers


def test_each_runs_at_once_and_then_after_its_period():
    """The wait is that for the next one that is due."""
    now, ran = [0.0], []
    timers = Timers(
        [Timer("a", 10, lambda: ran.append("a")), Timer("b", 3, lambda: ran.append("b"))],
        lambda: now[0],
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
        [Timer("making jobs", 1, fail), Timer("b", 1, lambda: ran.append("b"))], lambda: now[0]
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
        [Timer("a", 1, lambda: "made 3 jobs"), Timer("b", 1, lambda: None)], lambda: 0.0
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

    timers = Timers([Timer("a", 1, fail), Timer("b", 1, lambda: ran.append("b"))], lambda: now[0])
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
        Timers([Timer("a", 1, fail)], lambda: 0.0).run_due()
