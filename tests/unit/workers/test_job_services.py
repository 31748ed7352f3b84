"""How often `sleeper serve` looks at queues: seldom where a look costs money and nothing waits."""

from __future__ import annotations

import pytest

from sleeper.workers.serve.job_services import JobServices


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
