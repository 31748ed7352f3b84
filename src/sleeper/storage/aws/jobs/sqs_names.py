"""Names of an instance's queues in SQS: those of upstream, where it has the queue."""

from __future__ import annotations

from typing import Final

from sleeper.language.value_classes import dataclass
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


def sqs_names(prefix: str, name: QueueName, *, fifo: bool) -> SqsNames:
    """Return the names of a queue and its dead letters.

    >>> sqs_names("sleeper-demo-", QueueName.INGEST, fifo=False).queue
    'sleeper-demo-IngestJobQ'
    """
    queue, dead = _NAMES[name]
    end = _FIFO if fifo else ""
    return SqsNames(prefix + queue + end, prefix + dead + end)
