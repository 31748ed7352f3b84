"""Threads that ask at the same time share looks for newer commits."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event, Lock

import pytest

from sleeper.tables.open_table import LOOKS_AT_ONCE, LooksTogether
from tests.patience import PATIENCE_S

ASKING = 10


class Looks:
    """Numbers looks in the order in which they begin; they end when `end` is set."""

    def __init__(self):
        self.end, self.all_begun = Event(), Event()
        self.count, self._lock = 0, Lock()

    def __call__(self):
        with self._lock:
            self.count += 1
            number = self.count
        if number == LOOKS_AT_ONCE:
            self.all_begun.set()
        self.end.wait(PATIENCE_S)
        return number


@pytest.fixture
def threads():
    with ThreadPoolExecutor(2 * LOOKS_AT_ONCE) as threads:
        yield lambda work: threads.submit(work).result


def begun(shared, look, beside):
    """As many looks as may be under way, and then some threads more that ask."""
    first = [shared.begin(look, beside) for _ in range(LOOKS_AT_ONCE)]
    assert look.all_begun.wait(PATIENCE_S)
    return first, [shared.begin(look, beside) for _ in range(ASKING)]


def test_all_that_ask_meanwhile_share_a_look_that_begins_later(threads):
    """Given looks under way, when others ask, then one look is made for them all, after these."""
    look = Looks()
    first, asking = begun(LooksTogether(), look, threads)

    assert look.count == LOOKS_AT_ONCE
    look.end.set()

    assert sorted(wait() for wait in first) == [*range(1, LOOKS_AT_ONCE + 1)]
    assert {wait() for wait in asking} == {LOOKS_AT_ONCE + 1}


def test_who_asks_when_looks_have_ended_looks_alone(threads):
    """Given looks that ended, then a query makes its own: theirs began before it."""
    look, shared = Looks(), LooksTogether()
    look.end.set()

    assert [shared.begin(look, threads)() for _ in range(ASKING)] == [*range(1, ASKING + 1)]


def test_what_a_look_raises_is_raised_in_all_that_wait_for_it(threads):
    """Given a look that fails, then nobody waits for ever, and the next one looks again."""
    look, shared = Looks(), LooksTogether()

    def fail():
        raise OSError(f"failed {look()}")

    first, asking = begun(shared, fail_as(fail, look), threads)
    look.end.set()

    for wait in [*first, *asking]:
        with pytest.raises(OSError, match="failed"):
            wait()
    assert shared.begin(look, threads)() == LOOKS_AT_ONCE + 2


def test_while_python_ends_who_waits_looks_alone(threads):
    """Given that no thread begins work any more, then nobody waits for ever."""
    look, begins = Looks(), [threads] * LOOKS_AT_ONCE

    def beside(work):
        if not begins:
            raise RuntimeError("cannot schedule new futures after shutdown")
        return begins.pop()(work)

    first, asking = begun(LooksTogether(), look, beside)
    look.end.set()

    assert all(wait() for wait in first)
    assert all(wait() > LOOKS_AT_ONCE for wait in asking)


def fail_as(fail, look):
    """Return `fail`, with what `begun` asks of a look."""
    fail.all_begun = look.all_begun
    return fail
