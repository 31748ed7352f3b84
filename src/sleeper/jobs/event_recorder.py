"""Records what happens to jobs, and lets no job fail because a tracker does."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from sleeper.errors import StorageFailed
from sleeper.model.jobs.events import JobEvent, JobKind, TaskEvent
from sleeper.model.known_properties.typed import InstanceProperties
from sleeper.ports.job_tracker import JobTracker

_log = logging.getLogger(__name__)


def events_kept(properties: InstanceProperties) -> dict[JobKind, timedelta]:
    """Return how long events of each kind of job are kept; what is not tracked is left out."""
    trackers = properties.trackers
    kept = {
        JobKind.QUERY: timedelta(days=trackers.query_ttl_days),
        JobKind.EXPORT: timedelta(days=trackers.query_ttl_days),
    }
    if trackers.ingest:
        kept[JobKind.INGEST] = timedelta(seconds=trackers.ingest_job_ttl_s)
    if trackers.compaction:
        kept[JobKind.COMPACTION] = timedelta(seconds=trackers.compaction_job_ttl_s)
    return kept


class EventRecorder:
    """Writes events to a tracker.

    Args:
        tracker: Where events are kept.
        kept: How long events of each kind of job are kept; kinds that are not named are not
            tracked, and nothing is written for them.
        now: The clock (aware, UTC).
    """

    def __init__(
        self,
        tracker: JobTracker,
        *,
        kept: Mapping[JobKind, timedelta],
        now: Callable[[], datetime],
    ) -> None:
        self._tracker = tracker
        self._kept = kept
        self.now = now

    def record(self, *events: JobEvent | TaskEvent) -> None:
        """Write events of one kind of job. A tracker that fails is logged, never raised."""
        if not events or (kept := self._kept.get(events[0].kind)) is None:
            return
        try:
            self._tracker.record(events, expires=self.now() + kept)
        except StorageFailed as failure:
            lost = ", ".join(_text(event) for event in events)
            _log.warning("the tracker misses %s: %s", lost, failure)


def _text(event: JobEvent | TaskEvent) -> str:
    if isinstance(event, TaskEvent):
        return f"task {event.task_id} {'finished' if event.is_finished else 'started'}"
    return f"job {event.job_id} {event.type}"
