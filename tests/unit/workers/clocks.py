"""Clocks and stop signals of tests."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from sleeper.ports.clock import Clock
from sleeper.workers.stop_signal import StopSignal


def clock_of(ticks_s: Callable[[], float]) -> Clock:
    """Return a clock with these seconds, which cannot be waited with."""

    def cannot_wait(_: float) -> None:
        raise AssertionError("this clock is only read")

    return Clock(
        now=lambda: datetime.fromtimestamp(ticks_s(), UTC),
        ticks_s=ticks_s,
        sleep=cannot_wait,
        back_off=cannot_wait,
    )


class SimulatedStop(StopSignal):
    """A stop signal that asks a test's functions instead of waiting for real."""

    def __init__(
        self,
        is_set: Callable[[], bool] = lambda: False,
        wait: Callable[[float], object] = lambda seconds: None,
    ) -> None:
        super().__init__()
        self._asks = is_set
        self._waits = wait

    def is_set(self) -> bool:
        """Return what the test says."""
        return self._asks() or super().is_set()

    def wait(self, seconds: float) -> bool:
        """Let the test's time pass."""
        self._waits(seconds)
        return super().is_set()
