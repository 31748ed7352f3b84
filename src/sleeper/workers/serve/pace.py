"""How long table maintenance rests: longer and longer while nothing changes, to cost nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable

LONGEST_S = 900.0
"""The longest pause between two rounds, unless the shortest is longer."""

_DAY_S = 24 * 60 * 60
_LOOK_S = 1.0


class Pace:
    """The pauses between rounds: the shortest after a change, else twice as long as the last.

    Args:
        every_s: The shortest pause.
        stop: Set when the loop is to end.
        ticks_s: A clock that is never set, in seconds.
    """

    def __init__(
        self, every_s: float, *, stop: threading.Event, ticks_s: Callable[[], float]
    ) -> None:
        self._every_s = every_s
        self._longest_s = max(every_s, LONGEST_S)
        self._stop = stop
        self._ticks_s = ticks_s
        self._pause_s = every_s / 2
        self._changed = False
        self._swept_s: float | None = None

    def note_change(self) -> None:
        """Take note that a table changed, or a job runs: the shortest pause suffices now.

        May be called from any thread; it shortens the current rest.
        """
        self._changed = True

    def rest(self) -> None:
        """Wait for the next round, or until all is to end."""
        begun_s = self._ticks_s()
        self._pause_s = min(self._longest_s, 2 * self._pause_s)
        while True:
            pause_s = self._every_s if self._changed else self._pause_s
            left_s = begun_s + pause_s - self._ticks_s()
            if left_s <= 0 or self._stop.wait(min(left_s, _LOOK_S)):
                break
        if self._changed:
            self._pause_s = self._every_s / 2
        self._changed = False

    def sweep_is_due(self) -> bool:
        """Return whether orphans are to be looked for: at first, and then once a day."""
        now_s = self._ticks_s()
        if self._swept_s is not None and now_s - self._swept_s < _DAY_S:
            return False
        self._swept_s = now_s
        return True
