"""Names of an instance's queues in SQS: those of upstream, where it has the queue."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from sleeper.errors import PropertiesInvalid
from sleeper.model.jobs.messages import QueueName

_NAMES: Final = {
    QueueName.INGEST: ("IngestJobQ", "IngestJobDLQ"),
    QueueName.BULK_IMPORT: ("BulkImportQ", "BulkImportDLQ"),
    QueueName.BULK_IMPORT_EMR: ("BulkImportNonPersistentEMRQ", "BulkImportNonPersistentEMRDLQ"),
    QueueName.BULK_IMPORT_PERSISTENT_EMR: (
        "BulkImportPersistentEMRQ",
        "BulkImportPersistentEMRDLQ",
    ),
    QueueName.BULK_IMPORT_EMR_SERVERLESS: (
        "BulkImportEMRServerlessQ",
        "BulkImportEMRServerlessDLQ",
    ),
    QueueName.BULK_IMPORT_EKS: ("BulkImportEKSQ", "BulkImportEKSDLQ"),
    QueueName.BATCHER: ("IngestBatcherSubmitQ", "IngestBatcherSubmitDLQ"),
    QueueName.QUERY: ("QueryQueue", "QueryDLQ"),
    QueueName.EXPORT: ("BulkExport-Q", "BulkExport-DLQ"),
    QueueName.COMMIT: ("StateStoreCommitterQ", "StateStoreCommitterDLQ"),
}
_FIFO: Final = ".fifo"


@dataclass(frozen=True, slots=True)
class SqsNames:
    """The names of a queue in SQS and of the queue that has its dead letters."""

    queue: str
    dead: str


def resource_prefix(instance_id: str) -> str:
    """Return what the names of an instance's resources in AWS begin with.

    >>> resource_prefix("Demo.2")
    'sleeper-demo-2-'

    Raises:
        PropertiesInvalid: the id has other characters than AWS allows in names.
    """
    cleaned = instance_id.lower().replace(".", "-")
    if not re.fullmatch("[a-z0-9_-]+", cleaned):
        raise PropertiesInvalid(
            {
                "sleeper.id": f"sleeper.id is {instance_id!r}, but names in AWS have only letters "
                "from a to z, digits, - and _: sleeper.jobs.url cannot be sqs for this instance."
            }
        )
    return f"sleeper-{cleaned}-"


def sqs_names(prefix: str, name: QueueName, *, fifo: bool) -> SqsNames:
    """Return the names of a queue and its dead letters.

    >>> sqs_names("sleeper-demo-", QueueName.INGEST, fifo=False).queue
    'sleeper-demo-IngestJobQ'
    """
    queue, dead = _NAMES[name]
    end = _FIFO if fifo else ""
    return SqsNames(prefix + queue + end, prefix + dead + end)
