"""Steps of another thread, so that a signal reaches the main thread while one lasts (QRY-23)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from sleeper.engine.interruptible import awaited, interruptible, steps_left
from tests.patience import PATIENCE_S, becomes_true


def test_items_come_in_order_from_another_thread_which_closes_them():
    """Given an iterator, when it is read to its end or left early, then one other thread has taken
    each item when it was asked for, and has closed it.
    """
    makers, closed = [], []

    def items():
        try:
            for number in range(5):
                makers.append(threading.current_thread().name)
                yield number
        finally:
            closed.append(threading.current_thread().name)

    assert list(interruptible(items())) == [*range(5)]
    some = interruptible(items())
    assert [next(some), next(some)] == [0, 1]
    some.close()

    assert makers == ["sleeper-rows"] * 7
    assert closed == ["sleeper-rows"] * 2
    assert not steps_left()


def test_a_failure_is_raised_where_the_item_is_awaited():
    """Given an iterator that fails, then its own error comes after the items before it."""

    def items():
        yield "one"
        raise KeyError("two")

    read = interruptible(items())

    assert next(read) == "one"
    with pytest.raises(KeyError, match="two"):
        next(read)
    with pytest.raises(ZeroDivisionError):
        awaited(lambda: 1 // 0)


@pytest.fixture
def _pythons_handler():
    """Python's own handler of SIGINT: a command that ran in this process may have left another."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_pythons_handler")
def test_a_signal_ends_the_wait_and_not_the_step():
    """Given a step that no signal reaches, when SIGINT comes, then KeyboardInterrupt is raised
    while the step lasts; after it the iterator is closed, and no step is left.
    """
    go_on, closed = threading.Event(), threading.Event()

    def items():
        try:
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
            go_on.wait(PATIENCE_S)
            yield 1
        finally:
            closed.set()

    with pytest.raises(KeyboardInterrupt):
        next(interruptible(items()))

    assert steps_left()
    assert not closed.is_set()
    go_on.set()
    assert closed.wait(PATIENCE_S)
    assert becomes_true(lambda: not steps_left())


def test_other_threads_get_no_signals_and_take_items_themselves():
    """Given a thread that is not the main one, then no third thread is started."""
    makers = []

    def items():
        makers.append(threading.current_thread().name)
        yield 1

    reader = threading.Thread(target=lambda: list(interruptible(items())), name="reader")
    reader.start()
    reader.join(PATIENCE_S)

    assert makers == ["reader"]


def test_python_ends_right_after_a_step_has_looked_for_signals(tmp_path):
    """Given a step that nobody waits for any more, which wakes once a second, when the program
    ends, then it does so just after the step woke, and not just before it would again.
    """
    script = tmp_path / "left.py"
    script.write_text(LEFT_STEP)

    ended = subprocess.run(
        [sys.executable, script], capture_output=True, check=True, timeout=PATIENCE_S
    )

    assert float(ended.stdout) < 0.6


LEFT_STEP = """
import atexit, os, signal, threading, time

woken = [time.monotonic()]
atexit.register(lambda: print(time.monotonic() - woken[-1]))

from sleeper.engine.interruptible import interruptible

def items():
    threading.Timer(0.8, os.kill, (os.getpid(), signal.SIGINT)).start()
    while True:
        time.sleep(1.0)
        woken.append(time.monotonic())
    yield 1

try:
    next(interruptible(items()))
except KeyboardInterrupt:
    pass
"""
"""Tells how long ago the step woke. Without a look, this would be 0.8 s."""
