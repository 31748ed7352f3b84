"""A clock of a test's own: waiting takes no time, and the clock may be wrong."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count


class Clock:
    """The time of a test. Waiting sets it forward."""

    def __init__(self) -> None:
        self.time = datetime(2026, 5, 4, 12, tzinfo=UTC)

    def now(self) -> datetime:
        return self.time

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.time += timedelta(seconds=seconds)


def numbered(prefix: str) -> Callable[[], str]:
    """Return a maker of ids: the prefix and 0, 1, 2, ..."""
    numbers = count()
    return lambda: f"{prefix}{next(numbers)}"
