"""Items that another thread takes ahead."""

from __future__ import annotations

import threading
import time

import pytest

from sleeper.engine.ahead import taken_ahead
from tests.patience import PATIENCE_S


def test_items_come_in_order_from_another_thread():
    """All of them, and the thread is gone afterwards."""
    names = set()

    def items():
        for number in range(100):
            names.add(threading.current_thread().name)
            yield number

    assert list(taken_ahead(items(), 2, thread="ahead")) == [*range(100)]
    assert names == {"ahead_0"}
    assert "ahead_0" not in {thread.name for thread in threading.enumerate()}


def test_the_next_item_is_made_while_one_is_used():
    """Two steps of a work run at once, so many items ahead and not more."""
    made = [threading.Event() for _ in range(6)]

    def items():
        for number, event in enumerate(made):
            event.set()
            yield number

    ahead = taken_ahead(items(), 2, thread="ahead")
    assert not made[0].is_set()

    assert next(ahead) == 0

    assert made[2].wait(PATIENCE_S)
    assert not made[3].wait(0.1)
    ahead.close()


def test_a_failure_comes_after_the_items_before_it():
    """It is the same error, and ends the generator."""

    def items():
        yield 1
        raise KeyError("two")

    ahead = taken_ahead(items(), 4, thread="ahead")

    assert next(ahead) == 1
    with pytest.raises(KeyError, match="two"):
        next(ahead)
    assert list(ahead) == []


def test_closing_waits_until_nobody_uses_the_iterator():
    """So the iterator can be closed, which fails while a thread is in it."""
    go_on, begun = threading.Event(), threading.Event()

    def items():
        yield 1
        begun.set()
        go_on.wait(PATIENCE_S)
        yield 2

    source = items()
    ahead = taken_ahead(source, 1, thread="ahead")
    assert next(ahead) == 1
    assert begun.wait(PATIENCE_S)
    threading.Timer(0.1, go_on.set).start()

    ahead.close()

    assert go_on.is_set()
    source.close()
    assert list(ahead) == []


def test_an_interrupted_start_waits_too(monkeypatch):
    """A signal may come while the thread is started: the pool knows nothing of it then."""
    begun = threading.Event()
    start = threading.Thread.start

    def start_interrupted(thread):
        start(thread)
        if thread.name.startswith("ahead"):
            assert begun.wait(PATIENCE_S)
            raise KeyboardInterrupt

    def items():
        begun.set()
        time.sleep(0.1)
        yield 1

    monkeypatch.setattr(threading.Thread, "start", start_interrupted)
    source = items()
    with pytest.raises(KeyboardInterrupt):
        next(taken_ahead(source, 1, thread="ahead"))

    source.close()
