"""Asks now and then whether an instance is paused."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Lock

from sleeper.errors import StorageFailed
from sleeper.instance.pause import PauseSwitch

_LOOK_S = 5.0
_log = logging.getLogger(__name__)


class PauseLook:
    """Says whether the instance is paused, as of the last 5 seconds. Safe for threads.

    While the storage cannot be read, the last answer holds.

    Args:
        switch: The instance's switch.
        ticks_s: A clock that is never set, in seconds.
    """

    def __init__(self, switch: PauseSwitch, ticks_s: Callable[[], float]) -> None:
        self._switch = switch
        self._ticks_s = ticks_s
        self._looking = Lock()
        self._looked_s: float | None = None
        self._paused = False

    def __call__(self) -> bool:
        """Return whether it is paused, and log when that changed."""
        with self._looking:
            now_s = self._ticks_s()
            if self._looked_s is not None and now_s - self._looked_s < _LOOK_S:
                return self._paused
            self._looked_s = now_s
            try:
                since = self._switch.paused_since()
            except StorageFailed as failure:
                _log.warning("whether the instance is paused cannot be seen now: %s", failure)
                return self._paused
            if self._paused != (since is not None):
                self._paused = since is not None
                _log.info("paused since %s" if since else "resumed%s", since or "")
            return self._paused
