"""Notices in a process that runs for days what became of its instance.

It may be paused, moved or replaced, and its properties may be changed. Each look at the storage
costs a request, so looks are some seconds or a minute apart.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Lock

from sleeper.errors import (
    InstanceGone,
    InstanceLost,
    InstanceReplaced,
    SleeperError,
    StorageFailed,
)
from sleeper.instance.instance import Instance
from sleeper.model.jobs.kinds import kind_of

_PAUSE_LOOK_S = 5.0
_PROPERTIES_LOOK_S = 60.0
_log = logging.getLogger(__name__)


class PauseLook:
    """Says whether an instance is paused, as of the last 5 seconds. Safe for threads.

    While the storage cannot be read, the last answer holds.

    Args:
        instance: The instance.
    """

    def __init__(self, instance: Instance) -> None:
        self._switch = instance.pause_switch
        self._clock = instance.clock
        self._looking = Lock()
        self._looked_s: float | None = None
        self._paused = False

    def __call__(self) -> bool:
        """Return whether it is paused, and log when that changed."""
        with self._looking:
            now_s = self._clock.ticks_s()
            if self._looked_s is not None and now_s - self._looked_s < _PAUSE_LOOK_S:
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


def is_paused(instance: Instance, kind: str) -> bool:
    """Return whether the instance is paused now, and that stops jobs of a kind."""
    return not kind_of(kind).goes_on_paused and instance.pause_switch.paused_since() is not None


class PropertiesLook:
    """Says whether an instance's properties were changed since it was opened. Safe for threads.

    While the storage cannot be read, they count as unchanged. If the instance is no longer at its
    place, each look raises `InstanceLost`.

    Args:
        instance: The instance.
        every_s: Seconds between two looks.
    """

    def __init__(self, instance: Instance, every_s: float = _PROPERTIES_LOOK_S) -> None:
        self._instance = instance
        self._stored = instance.stored_properties
        self._values = dict(instance.properties.values)
        self._clock = instance.clock
        self._every_s = every_s
        self._looked_s = self._clock.ticks_s()
        self._changed = False

    def __call__(self) -> bool:
        """Return whether they were changed, and log it once.

        Raises:
            InstanceLost: the instance is no longer at its place.
        """
        now_s = self._clock.ticks_s()
        if self._changed or now_s - self._looked_s < self._every_s:
            return self._changed
        self._looked_s = now_s
        try:
            newest = self._stored.newest()
        except SleeperError as failure:
            _log.warning("whether properties were changed cannot be seen now: %s", failure)
            return False
        if newest == self._values:
            return False
        if newest is None or newest["sleeper.id"] != self._instance.instance_id:
            self._instance.check()
            return False
        names = newest.keys() | self._values.keys()
        changed = sorted(name for name in names if newest.get(name) != self._values.get(name))
        _log.info(
            "properties of the instance were changed: %s; processes that start now use them",
            ", ".join(changed),
        )
        self._changed = True
        return True


class CurrentInstance:
    """The instance of a service; opened again when its properties were changed. Safe for threads.

    Args:
        instance: The instance as it was opened first.
        reopen: Opens it again.
        every_s: Seconds between two looks at the storage.

    Attributes:
        lost: Why the instance cannot be used, as of the last look; None if it can.
    """

    def __init__(
        self, instance: Instance, reopen: Callable[[], Instance], *, every_s: float = 0.0
    ) -> None:
        self._instance = instance
        self._reopen = reopen
        self._every_s = every_s
        self._look = PropertiesLook(instance, every_s)
        self.lost: InstanceLost | None = None

    def __call__(self) -> Instance:
        """Return the instance with the newest properties that were seen."""
        return self._instance

    def look(self, *, with_jobs: bool) -> bool:
        """Open the instance again if it was changed or replaced; return whether it was.

        The instance of before is not closed, because other threads may be using it. If the changed
        properties cannot be used, it stays, and the next look tries again.

        Args:
            with_jobs: Whether its jobs are used.

        Raises:
            InstanceGone: there is no instance at its place.
        """
        try:
            if not self._look() and not isinstance(self.lost, InstanceReplaced):
                self.lost = None
                return False
        except InstanceReplaced as failure:
            self.note_lost(failure)
        except InstanceGone as failure:
            self.lost = failure
            raise
        if self.lost is not None:
            _log.error("the instance is opened again: %s", self.lost)
        try:
            opened = self._reopen()
            if with_jobs:
                opened.jobs  # noqa: B018 - opened before other threads use it
        except SleeperError as failure:
            if self.lost is None:
                _log.error("changed properties cannot be used; older ones stay in use: %s", failure)
            else:
                _log.error("the instance cannot be opened again: %s", failure)
            return False
        self._instance, self.lost = opened, None
        self._look = PropertiesLook(opened, self._every_s)
        return True

    def note_lost(self, failure: InstanceLost) -> None:
        """Take note that the instance is not what was opened; the next look opens it again."""
        self.lost = failure
