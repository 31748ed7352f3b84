"""How an instance's queues deliver, and how their messages are handled, by its properties."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from sleeper.model.jobs.events import JobKind
from sleeper.model.jobs.messages import HIDDEN_MAX_S, QueueName, QueueSettings
from sleeper.model.known_properties.typed import InstanceProperties

_COMMIT_RECEIVES_MAX: Final = 1_000  # a request is tried until the log takes or refuses it
_KEEPALIVES: Final = 3
"""How often a lease is renewed before it would end, at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlingSettings:
    """How a worker handles the messages of one queue.

    Attributes:
        keepalive_s: How often the lease of a message is renewed while it is handled; always
            shorter than the lease.
        retry_first_s: How long a message waits after its first failure.
        retry_max_s: How long it waits after any failure, at most.
    """

    keepalive_s: float
    retry_first_s: float
    retry_max_s: float


def queue_settings(properties: InstanceProperties, name: QueueName) -> QueueSettings:
    """Return how one of an instance's queues delivers.

    Messages to the committer stay in order for each table (rule STS-21); other queues promise
    no order. No message is hidden for longer than half a day, whatever a property says.
    """
    return QueueSettings(
        fifo=name is QueueName.COMMIT,
        visibility_s=min(_visibility_s(properties, name), HIDDEN_MAX_S),
        receives_max=_COMMIT_RECEIVES_MAX
        if name is QueueName.COMMIT
        else properties.jobs.receives_max,
    )


def handling_settings(properties: InstanceProperties, name: QueueName) -> HandlingSettings:
    """Return how messages of one of an instance's queues are handled."""
    keepalive_s, first_s = properties.ingest_queue.keepalive_s, properties.jobs.retry_first_s
    if name is QueueName.EXPORT:
        keepalive_s = properties.export_queue.keepalive_s
        first_s = properties.export_queue.failed_visibility_s
    visibility_s = queue_settings(properties, name).visibility_s
    retry_first_s = min(float(first_s), HIDDEN_MAX_S)
    return HandlingSettings(
        keepalive_s=min(float(keepalive_s), visibility_s / _KEEPALIVES),
        retry_first_s=retry_first_s,
        retry_max_s=max(float(properties.jobs.retry_max_s), retry_first_s),
    )


def _visibility_s(properties: InstanceProperties, name: QueueName) -> float:
    """How long a message is hidden. A bulk import is hidden as long as a standard ingest."""
    match name:
        case QueueName.BATCHER:
            return float(properties.ingest_queue.submitter_timeout_s)
        case QueueName.EXPORT:
            return float(properties.export_queue.visibility_s)
        case QueueName.COMMIT:
            return float(properties.committer.visibility_s)
        case QueueName.QUERY:
            return float(properties.query_queue.visibility_s)
        case _:
            return float(properties.ingest_queue.visibility_s)


# ---------------------------------------------------------------- tracker settings
#
# Which jobs an instance tracks, and for how long, by its properties (rule TRK-8).


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
