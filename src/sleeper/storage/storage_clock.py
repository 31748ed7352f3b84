"""What time it is by the clock of the storage: one clock that all writers of an instance share.

Leases, garbage, orphans and job ids are judged by this time, because the clocks of machines differ
and the clock of one machine may jump.
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
_DRIFT_MAX = timedelta(seconds=2)  # between the local clock and the ticks, since storage was asked


@dataclass(frozen=True, slots=True)
class _Answer:
    """What the storage said, and the local clock and ticks when it did."""

    storage_time: datetime
    local_time: datetime
    ticks_s: float


class StorageClock:
    """The time of the storage, asked once and counted on from there. Safe for many threads.

    The storage is asked again when its answer is ten minutes old, and when the local clock and
    the ticks disagree about how old it is: the clock was set, or the machine slept.

    Args:
        objects: The instance's objects; a small one is written to learn the time.
        now: The local clock (aware, UTC).
        ticks_s: Seconds since any moment, by a clock that is never set.
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
        """Return the storage's time, at most two seconds wrong.

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
        """Return the time by the last answer; None where that cannot be relied on."""
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
                f"storage's {storage_time:%Y-%m-%d %H:%M:%S} UTC: {ahead} ahead, where "
                f"{self._ahead_max} are allowed. Nothing was written. Set the clock of this "
                "machine (or that of the storage) right, or raise "
                "sleeper.clock.skew.max.minutes of the instance."
            )
        return answer
