"""The time by the clock of the storage, which all writers of an instance share.

The age of leases, garbage, orphans and job ids is measured by this clock, because the clocks of
machines differ, and the clock of one machine may jump.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from logging import getLogger
from threading import Lock

from sleeper.errors import ClockTooFarAhead
from sleeper.ports.objects import Objects

_LOG = getLogger(__name__)
_ASKED_EVERY = timedelta(minutes=10)
_DRIFT_MAX = timedelta(seconds=2)  # between local clock and ticks, since the storage was asked


@dataclass(frozen=True, slots=True)
class _Answer:
    """The time of the storage, with the local clock and ticks of that moment."""

    storage_time: datetime
    local_time: datetime
    ticks_s: float


class StorageClock:
    """The time of the storage: asked once, then advanced by ticks. Safe for many threads.

    The storage is asked again when its answer is ten minutes old, and when local clock and ticks
    disagree about its age, because the clock was set or the machine slept.

    Args:
        objects: The instance's objects; a small one is written to find out the time.
        now: The local clock (aware, UTC).
        ticks_s: Seconds of a monotonic clock.
        ahead_max: How far the local clock may be ahead of the storage.
    """

    def __init__(
        self,
        objects: Objects,
        *,
        now: Callable[[], datetime],
        ticks_s: Callable[[], float],
        ahead_max: timedelta,
    ) -> None:
        self._objects = objects
        self._now = now
        self._ticks_s = ticks_s
        self._ahead_max = ahead_max
        self._asking = Lock()
        self._answer: _Answer | None = None

    def time(self) -> datetime:
        """Return the storage's time; the error is at most two seconds.

        Raises:
            ClockTooFarAhead: the local clock is further ahead of it than is allowed.
            StorageFailed: the storage cannot be written.
        """
        with self._asking:
            counted = self._counted_on()
            if counted is None:
                self._answer = self._ask()
                return self._answer.storage_time
            return counted

    def _counted_on(self) -> datetime | None:
        """Return the time from the last answer; None if it is no longer reliable."""
        answer = self._answer
        if answer is None:
            return None
        passed = timedelta(seconds=self._ticks_s() - answer.ticks_s)
        by_clock = self._now() - answer.local_time
        if abs(by_clock - passed) > _DRIFT_MAX:
            _LOG.info("the local clock was set, or the machine slept: asking storage for its time")
            return None
        return answer.storage_time + passed if timedelta() <= passed <= _ASKED_EVERY else None

    def _ask(self) -> _Answer:
        storage_time = self._objects.storage_time()
        answer = _Answer(storage_time, self._now(), self._ticks_s())
        ahead = answer.local_time - storage_time
        if ahead > self._ahead_max:
            raise ClockTooFarAhead(
                f"this machine's clock says {answer.local_time:%Y-%m-%d %H:%M:%S} UTC, the "
                f"storage's {storage_time:%Y-%m-%d %H:%M:%S} UTC. It is {ahead} ahead; at most "
                f"{self._ahead_max} is allowed. Nothing was written. Correct the clock of this "
                "machine (or of the storage), or increase the instance's property "
                "sleeper.clock.skew.max.minutes."
            )
        return answer
