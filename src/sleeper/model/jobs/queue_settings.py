"""How an instance's queues deliver, and how its workers take from them, by its properties."""

from __future__ import annotations

from typing import Final

from sleeper.model.jobs.messages import QueueName, QueueSettings
from sleeper.model.known_properties.typed import InstanceProperties

_VISIBILITY_S: Final = 900.0


def queue_settings(properties: InstanceProperties, name: QueueName) -> QueueSettings:
    """Return how one of an instance's queues delivers.

    Messages to the committer stay in order for each table (rule STS-21); other queues promise
    no order.
    """
    return QueueSettings(
        fifo=name is QueueName.COMMIT,
        visibility_s=_visibility_s(properties, name),
        receives_max=properties.jobs.receives_max,
    )


def _visibility_s(properties: InstanceProperties, name: QueueName) -> float:
    """How long a message is hidden. A bulk import is hidden as long as a standard ingest."""
    match name:
        case QueueName.BATCHER:
            return float(properties.ingest_queue.submitter_timeout_s)
        case QueueName.EXPORT:
            return float(properties.export_queue.visibility_s)
        case QueueName.QUERY | QueueName.COMMIT:
            return _VISIBILITY_S
        case _:
            return float(properties.ingest_queue.visibility_s)
