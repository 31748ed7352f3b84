"""The clock of the storage, under local clocks that are set and machines that sleep."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from sleeper.errors import ClockTooFarAhead
from sleeper.storage.memory import MemoryObjects
from sleeper.storage.storage_clock import StorageClock

NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)
SECOND, MINUTE, YEAR = timedelta(seconds=1), timedelta(minutes=1), timedelta(days=365)


@dataclass
class Machine:
    """A machine whose clock may be wrong, and a storage whose clock is right."""

    true_time: datetime = NOON
    error: timedelta = timedelta()
    ticks_s: float = 5.0
    asked: int = 0

    def __post_init__(self):
        self.clock = StorageClock(
            MemoryObjects(now=self._storage_time),
            now=lambda: self.true_time + self.error,
            ticks_s=lambda: self.ticks_s,
            ahead_max=10 * MINUTE,
        )

    def _storage_time(self):
        self.asked += 1
        return self.true_time

    def wait(self, time, *, asleep=False):
        self.true_time += time
        self.ticks_s += 0 if asleep else time.total_seconds()


def test_storage_is_asked_once_and_its_time_counted_on():
    """A process asks every ten minutes, however often it commits."""
    machine = Machine()

    times = []
    for _ in range(20):
        times.append(machine.clock.time())
        machine.wait(MINUTE)

    assert times == [NOON + n * MINUTE for n in range(20)]
    assert machine.asked == 2


@pytest.mark.parametrize("jump", [-YEAR, -5 * SECOND, 5 * SECOND, 9 * MINUTE])
def test_a_clock_that_is_set_changes_nothing(jump):
    """Storage is asked again, so its time goes on as before."""
    machine = Machine()
    machine.clock.time()

    machine.wait(MINUTE)
    machine.error = jump

    assert machine.clock.time() == NOON + MINUTE
    assert machine.asked == 2


def test_a_machine_that_slept_asks_again():
    """Its ticks stood still meanwhile, and its clock did not."""
    machine = Machine()
    machine.clock.time()

    machine.wait(5 * MINUTE, asleep=True)

    assert machine.clock.time() == NOON + 5 * MINUTE


def test_a_clock_that_is_behind_is_no_obstacle():
    """Storage's time is used anyway."""
    assert Machine(error=-YEAR).clock.time() == NOON


def test_a_clock_that_is_too_far_ahead_is_refused():
    """The message has both times and the property; a clock that is set right helps at once."""
    machine = Machine(error=11 * MINUTE)

    with pytest.raises(ClockTooFarAhead, match=r"12:11:00 .* 12:00:00 .*clock\.skew\.max\.minutes"):
        machine.clock.time()
    machine.error = 10 * MINUTE

    assert machine.clock.time() == NOON
