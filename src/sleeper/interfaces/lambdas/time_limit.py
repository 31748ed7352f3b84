"""How much time a call of a function has left."""

from __future__ import annotations

from threading import Event
from typing import Protocol

_RESERVE_S = 10.0


class LambdaContext(Protocol):
    """What Lambda passes to a function beside the event, as far as it is used."""

    def get_remaining_time_in_millis(self) -> int:
        """Return for how long the call may still run."""
        ...


class TimeLimit:
    """Says what may still be done in a call.

    Ten seconds are kept for giving back what is not done; of a short call, a quarter.

    Args:
        context: What Lambda passes.
    """

    def __init__(self, context: LambdaContext) -> None:
        self._context = context
        self._whole_s = self._left_s()
        self._reserve_s = min(_RESERVE_S, self._whole_s / 4)

    def is_over(self) -> bool:
        """Return whether all is to end now."""
        return self._left_s() <= self._reserve_s

    def may_begin(self) -> bool:
        """Return whether another message may be begun: half of the time is left for it."""
        return self._left_s() > self._whole_s / 2

    def rest(self, seconds: float) -> None:
        """Wait, but not beyond the end."""
        Event().wait(max(0.0, min(seconds, self._left_s() - self._reserve_s)))

    def _left_s(self) -> float:
        return self._context.get_remaining_time_in_millis() / 1000
