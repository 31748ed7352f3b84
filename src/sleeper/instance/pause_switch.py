"""The switch that stops all services of an instance for a while."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from logging import getLogger

from sleeper.model import paths
from sleeper.ports.objects import Objects

_LOG = getLogger(__name__)


class PauseSwitch:
    """While an instance is paused, no service begins a job or maintains a table; queries go on.

    The switch is an object of the instance, so it holds on all machines and survives restarts.
    What is at work goes on to its end. Methods that a user calls are not stopped by it.

    Args:
        objects: The instance's objects.
        now: The clock (aware, UTC).
    """

    def __init__(self, objects: Objects, now: Callable[[], datetime]) -> None:
        self._objects = objects
        self._now = now

    def pause(self) -> None:
        """Pause the instance. A pause that holds already keeps its time."""
        self._objects.create(paths.PAUSED, self._now().isoformat().encode())

    def resume(self) -> None:
        """Let services begin work again."""
        self._objects.delete([paths.PAUSED])

    def paused_since(self) -> datetime | None:
        """Return since when the instance is paused (aware, UTC); None when it is not."""
        body = self._objects.read(paths.PAUSED)
        if body is None:
            return None
        try:
            return datetime.fromisoformat(body.decode())
        except ValueError:
            _LOG.warning("%s says no time; the instance counts as paused", paths.PAUSED)
            return datetime.fromtimestamp(0, UTC)
