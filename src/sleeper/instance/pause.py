"""What services share in an instance: the switch that pauses them, and their notes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from logging import getLogger
from typing import Any

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


Notes = dict[str, dict[str, Any]]
"""What was noted of each table, by its id."""


class ServiceNotes:
    """Notes of services, by the name of each. Who loses them does its work once more.

    Of two writers at once the last one counts.

    Args:
        objects: The instance's objects.
    """

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def read(self, service: str) -> Notes:
        """Return the notes of a service; none where they are missing or cannot be understood."""
        key = paths.service_notes(service)
        body = self._objects.read(key)
        if body is None:
            return {}
        try:
            found = json.loads(body)
            return {str(name): dict(note) for name, note in found.items()}
        except (AttributeError, TypeError, ValueError) as error:
            _LOG.warning("%s cannot be read, and is written anew: %s", key, error)
            return {}

    def write(self, service: str, notes: Mapping[str, Mapping[str, Any]]) -> None:
        """Store the notes of a service in place of those before."""
        body = json.dumps(notes, separators=(",", ":"), sort_keys=True)
        self._objects.put(paths.service_notes(service), body.encode())
