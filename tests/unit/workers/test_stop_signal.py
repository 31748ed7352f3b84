"""What asks a process, or a call of a function, to end."""

from __future__ import annotations

import itertools
import sys
import threading
import time

import pytest

from sleeper.interfaces.lambdas.warm_instance import TimeLimit
from sleeper.workers.stop_signal import Interrupted, StopSignal
from tests.patience import PATIENCE_S


def test_a_stop_signal_that_was_set_stays_set():
    """Given a signal, then checks raise, and nobody waits."""
    stop = StopSignal()
    stop.check()
    assert not stop.wait(0.01)

    stop.set()

    assert stop.is_set()
    assert stop.wait(2 * PATIENCE_S)
    with pytest.raises(Interrupted):
        stop.check()


def test_who_waits_is_woken_by_the_signal():
    """Given a wait of a minute in one thread, when another sets it, then the wait ends."""
    stop = StopSignal()
    begun = time.monotonic()
    threading.Timer(0.05, stop.set).start()

    assert stop.wait(2 * PATIENCE_S)
    assert time.monotonic() - begun < PATIENCE_S


def test_it_may_be_set_at_any_step_of_a_wait_for_it():
    """Given a signal that arrives at any line of a wait, then that wait ends, and so does the next.

    A handler runs in the thread that waits: a lock that this thread holds is never free again.
    """

    def wait_and_be_asked(at_line: int, ended: list[int]) -> None:
        stop = StopSignal()
        lines = itertools.count()

        def trace(*_):
            if next(lines) == at_line:
                stop.set()
            return trace

        sys.settrace(trace)
        stop.wait(0.01)
        sys.settrace(None)
        if (count := next(lines)) > at_line:
            assert stop.wait(2 * PATIENCE_S)
        ended.append(count)

    for at_line in itertools.count():
        ended: list[int] = []
        waits = threading.Thread(target=wait_and_be_asked, args=(at_line, ended), daemon=True)
        waits.start()
        waits.join(timeout=PATIENCE_S)
        assert ended, f"asked at line {at_line} of its wait, it waits for ever"
        if ended[0] <= at_line:
            break
    assert at_line > 3


def test_a_deadline_sets_it():
    """Given a deadline, then it is set from then on, and nobody waits beyond it."""
    deadline = time.monotonic() + 0.2
    stop = StopSignal(lambda: deadline - time.monotonic())
    assert not stop.is_set()

    assert stop.wait(2 * PATIENCE_S)

    assert stop.is_set()
    assert time.monotonic() - deadline < PATIENCE_S


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
