"""What services that live for one call note for the next."""

from __future__ import annotations

import json
from collections.abc import Mapping
from logging import getLogger
from typing import Any

from sleeper.model import paths
from sleeper.ports.objects import Objects

_LOG = getLogger(__name__)

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
