"""Asks a process, or a call of a function, to end."""

from __future__ import annotations

import math
from collections.abc import Callable
from queue import Empty, SimpleQueue


class Interrupted(Exception):
    """The process was asked to end while it worked. What it had claimed goes back."""


class StopSignal:
    """Is set once, by a signal or at a deadline, and stays set. Safe for threads.

    A handler of signals runs in the main thread between any two of its steps. It must take no lock
    that the thread may just have taken, so an Event will not do: asked while the thread begins to
    wait for it, it would wait for ever. Python promises that `SimpleQueue.put` may interrupt any
    call of the same queue.

    Args:
        left_s: Returns the seconds until the deadline; without it there is none.
    """

    def __init__(self, left_s: Callable[[], float] = lambda: math.inf) -> None:
        self._is_asked = False
        self._wakes: SimpleQueue[None] = SimpleQueue()
        self._left_s = left_s

    def set(self) -> None:
        """Ask for the end. May be called in a signal handler."""
        self._is_asked = True
        self._wakes.put(None)

    def is_set(self) -> bool:
        """Return whether all work is to end now."""
        return self._is_asked or self._left_s() <= 0

    def wait(self, seconds: float) -> bool:
        """Wait for so many seconds, or until the end; return whether all work is to end now."""
        try:
            self._wakes.get(timeout=max(0.0, min(seconds, self._left_s())))
        except Empty:
            return self.is_set()
        self._wakes.put(None)  # for the next that waits
        return True

    def check(self) -> None:
        """Raise an exception if all work is to end now.

        Raises:
            Interrupted: it is.
        """
        if self.is_set():
            raise Interrupted("the process was asked to end")
