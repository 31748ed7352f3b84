"""Pauses of table maintenance: short after a change, longer and longer without one."""

from __future__ import annotations

from dataclasses import dataclass

from sleeper.workers.serve.pace import Pace


@dataclass
class Stop:
    """An event that is never set; waiting for it moves the clock."""

    now: float = 0.0
    is_stopped: bool = False

    def wait(self, seconds):
        self.now += seconds
        return self.is_stopped


def pauses(pace, stop, rounds, changed=()):
    """Return how long each rest took; a change is noted before some of them."""
    took = []
    for number in range(rounds):
        if number in changed:
            pace.note_change()
        before = stop.now
        pace.rest()
        took.append(round(stop.now - before))
    return took


def test_the_pause_doubles_while_nothing_changes_up_to_15_minutes():
    """From a minute on; a change brings the minute back."""
    stop = Stop()
    pace = Pace(60, stop=stop, ticks_s=lambda: stop.now)

    assert pauses(pace, stop, 6) == [60, 120, 240, 480, 900, 900]
    assert pauses(pace, stop, 4, changed=[1, 2]) == [900, 60, 60, 60]
    assert pauses(pace, stop, 2) == [120, 240]


def test_a_long_pause_that_was_asked_for_stays():
    """`--every 3600` is an hour, always."""
    stop = Stop()

    assert pauses(Pace(3600, stop=stop, ticks_s=lambda: stop.now), stop, 2) == [3600, 3600]


def test_a_job_at_work_ends_a_long_pause():
    """Given a rest of 15 minutes, when a job runs after 100 s, then the round begins."""
    stop = Stop()
    pace = Pace(60, stop=stop, ticks_s=lambda: stop.now)
    pauses(pace, stop, 5)
    begun, wait = stop.now, stop.wait

    def wait_and_work(seconds):
        if stop.now - begun >= 100:
            pace.note_change()
        return wait(seconds)

    stop.wait = wait_and_work
    pace.rest()

    assert 100 <= stop.now - begun <= 102


def test_it_rests_no_longer_once_it_is_stopped():
    """The wait ends, and so does the rest."""
    stop = Stop(is_stopped=True)

    assert pauses(Pace(60, stop=stop, ticks_s=lambda: stop.now), stop, 1) == [1]


def test_orphans_are_looked_for_once_a_day():
    """However long the rounds are."""
    now = [5.0]
    pace = Pace(60, stop=Stop(), ticks_s=lambda: now[0])

    assert [pace.sweep_is_due(), pace.sweep_is_due()] == [True, False]
    now[0] += 86_399
    assert not pace.sweep_is_due()
    now[0] += 1
    assert pace.sweep_is_due()
