"""Which jobs an instance tracks, and for how long, by its properties (rule TRK-8)."""

from __future__ import annotations

from datetime import timedelta

from sleeper.language.value_classes import dataclass
from sleeper.model.jobs.events import JobKind
from sleeper.model.known_properties.typed import InstanceProperties


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerSettings:
    """How jobs of one kind are tracked.

    Attributes:
        enabled: False: nothing is recorded or reported.
        job_ttl: How long an event of a job is kept from when it was recorded.
        task_ttl: How long an event of a task is kept.
    """

    enabled: bool
    job_ttl: timedelta
    task_ttl: timedelta


def tracker_settings(properties: InstanceProperties, kind: JobKind) -> TrackerSettings:
    """Return how jobs of a kind are tracked. Bulk imports are ingests (rule TRK-8)."""
    trackers = properties.trackers
    match kind:
        case JobKind.INGEST:
            return TrackerSettings(
                enabled=trackers.ingest,
                job_ttl=timedelta(seconds=trackers.ingest_job_ttl_s),
                task_ttl=timedelta(seconds=trackers.ingest_task_ttl_s),
            )
        case JobKind.COMPACTION:
            return TrackerSettings(
                enabled=trackers.compaction,
                job_ttl=timedelta(seconds=trackers.compaction_job_ttl_s),
                task_ttl=timedelta(seconds=trackers.compaction_task_ttl_s),
            )
        case _:
            # ten thousand years are too many for a date
            kept = timedelta(days=min(trackers.query_ttl_days, 36_500))
            return TrackerSettings(enabled=True, job_ttl=kept, task_ttl=kept)
