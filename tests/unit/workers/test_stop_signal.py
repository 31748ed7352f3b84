"""What asks a process, or a call of a function, to end."""

from __future__ import annotations

import threading
import time

import pytest

from sleeper.interfaces.lambdas.warm_instance import TimeLimit
from sleeper.workers.stop_signal import Interrupted, StopSignal


def test_a_stop_signal_that_was_set_stays_set():
    """Given a signal, then checks raise, and nobody waits."""
    stop = StopSignal()
    stop.check()
    assert not stop.wait(0.01)

    stop.set()

    assert stop.is_set()
    assert stop.wait(60)
    with pytest.raises(Interrupted):
        stop.check()


def test_who_waits_is_woken_by_the_signal():
    """Given a wait of a minute in one thread, when another sets it, then the wait ends."""
    stop = StopSignal()
    begun = time.monotonic()
    threading.Timer(0.05, stop.set).start()

    assert stop.wait(60)
    assert time.monotonic() - begun < 30


def test_a_deadline_sets_it():
    """Given a deadline, then it is set from then on, and nobody waits beyond it."""
    deadline = time.monotonic() + 0.2
    stop = StopSignal(lambda: deadline - time.monotonic())
    assert not stop.is_set()

    assert stop.wait(60)

    assert stop.is_set()
    assert time.monotonic() - deadline < 30


@pytest.mark.parametrize(
    ("whole_s", "left_s", "may_begin", "is_over"),
    [
        (900, 900, True, False),
        (900, 451, True, False),
        (900, 449, False, False),
        (900, 11, False, False),
        (900, 10, False, True),
        (8, 8, True, False),
        (8, 2.1, False, False),
        (8, 2, False, True),
    ],
)
def test_a_call_keeps_time_for_giving_back(whole_s, left_s, may_begin, is_over):
    """Ten seconds, or a quarter of a short call. Half of it is left for another message."""
    left = [whole_s]

    class Context:
        def get_remaining_time_in_millis(self):
            return int(left[0] * 1000)

    limit = TimeLimit(Context())
    left[0] = left_s

    assert (limit.may_begin(), limit.is_set()) == (may_begin, is_over)
