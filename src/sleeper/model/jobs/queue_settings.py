"""How an instance's queues deliver, and how its workers take from them, by its properties."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sleeper.model.jobs.message_rules import HIDDEN_MAX_S
from sleeper.model.jobs.messages import QueueName, QueueSettings
from sleeper.model.known_properties.typed import InstanceProperties

_VISIBILITY_S: Final = 900.0
_COMMIT_VISIBILITY_S: Final = 60.0  # a committer that was killed holds up its tables so long
_COMMIT_RECEIVES_MAX: Final = 1_000  # a request is tried until the log takes or refuses it
_KEEPALIVES: Final = 3
"""How often a lease is renewed before it would end, at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """How workers take from one queue.

    Attributes:
        workers_max: How many there may be at once; None without a limit.
        wait_s: How long one look for a message lasts.
        keepalive_s: How often the lease of a message is renewed while it is handled; always
            shorter than the lease.
        retry_first_s: How long a message waits after its first failure.
        retry_max_s: How long it waits after any failure, at most.
    """

    workers_max: int | None
    wait_s: float
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


def worker_settings(properties: InstanceProperties, name: QueueName) -> WorkerSettings:
    """Return how workers take from one of an instance's queues."""
    is_export = name is QueueName.EXPORT
    workers_max: int | None = properties.ingest_queue.workers_max
    if name in (QueueName.QUERY, QueueName.COMMIT, QueueName.BATCHER):
        workers_max = None
    elif is_export:
        workers_max = properties.export_queue.workers_max
    keepalive_s = (properties.export_queue if is_export else properties.ingest_queue).keepalive_s
    visibility_s = queue_settings(properties, name).visibility_s
    first_s = (
        properties.export_queue.failed_visibility_s if is_export else properties.jobs.retry_first_s
    )
    return WorkerSettings(
        workers_max=workers_max,
        wait_s=float(properties.ingest_queue.wait_s),
        keepalive_s=min(keepalive_s, visibility_s / _KEEPALIVES),
        retry_first_s=min(first_s, HIDDEN_MAX_S),
        retry_max_s=float(max(properties.jobs.retry_max_s, min(first_s, HIDDEN_MAX_S))),
    )


def _visibility_s(properties: InstanceProperties, name: QueueName) -> float:
    """How long a message is hidden. A bulk import is hidden as long as a standard ingest."""
    match name:
        case QueueName.BATCHER:
            return float(properties.ingest_queue.submitter_timeout_s)
        case QueueName.EXPORT:
            return float(properties.export_queue.visibility_s)
        case QueueName.COMMIT:
            return _COMMIT_VISIBILITY_S
        case QueueName.QUERY:
            return _VISIBILITY_S
        case _:
            return float(properties.ingest_queue.visibility_s)
