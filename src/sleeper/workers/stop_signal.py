"""Asks a process, or a call of a function, to end."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable


class Interrupted(Exception):
    """The process was asked to end while it worked. What it had claimed goes back."""


class StopSignal:
    """Is set once, by a signal or at a deadline, and stays set. Safe for threads.

    Args:
        left_s: Returns the seconds until the deadline; without it there is none.
    """

    def __init__(self, left_s: Callable[[], float] = lambda: math.inf) -> None:
        self._event = threading.Event()
        self._left_s = left_s

    def set(self) -> None:
        """Ask for the end. May be called in a signal handler."""
        self._event.set()

    def is_set(self) -> bool:
        """Return whether all work is to end now."""
        return self._event.is_set() or self._left_s() <= 0

    def wait(self, seconds: float) -> bool:
        """Wait for so many seconds, or until the end; return whether all work is to end now."""
        self._event.wait(max(0.0, min(seconds, self._left_s())))
        return self.is_set()

    def check(self) -> None:
        """Raise an exception if all work is to end now.

        Raises:
            Interrupted: it is.
        """
        if self.is_set():
            raise Interrupted("the process was asked to end")
