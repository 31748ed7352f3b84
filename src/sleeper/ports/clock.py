"""The clock of a process: reads time, and waits. One value, so that tests simulate all of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """What time it is, and how to let time pass.

    Attributes:
        now: The time of this machine (aware, UTC).
        ticks_s: A monotonic clock, in seconds.
        sleep: Waits for so many seconds.
        back_off: Waits before another attempt, given how many there were, with jitter.
    """

    now: Callable[[], datetime]
    ticks_s: Callable[[], float]
    sleep: Callable[[float], None]
    back_off: Callable[[int], None]
