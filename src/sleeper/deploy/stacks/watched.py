"""What of a deployment is watched: the queues and functions of the stacks that it has."""

from __future__ import annotations

from typing import Final

from sleeper.deploy.settings import DeploymentSettings
from sleeper.deploy.stacks.tasks import STARTER
from sleeper.model.jobs.messages import QueueName
from sleeper.storage.aws.jobs.sqs_names import SqsNames

_QUEUES: Final = {
    "IngestStack": QueueName.INGEST,
    "IngestBatcherStack": QueueName.BATCHER,
    "EmrServerlessBulkImportStack": QueueName.BULK_IMPORT_EMR_SERVERLESS,
    "EmrBulkImportStack": QueueName.BULK_IMPORT_EMR,
    "PersistentEmrBulkImportStack": QueueName.BULK_IMPORT_PERSISTENT_EMR,
    "EksBulkImportStack": QueueName.BULK_IMPORT_EKS,
    "BulkExportStack": QueueName.EXPORT,
    "QueryStack": QueueName.QUERY,
}
_OPERATIONS: Final = {
    "GarbageCollectorStack": "garbage-collector",
    "PartitionSplittingStack": "partition-splitter",
    "TableMetricsStack": "table-metrics",
}


def watched_queues(settings: DeploymentSettings) -> tuple[SqsNames, ...]:
    """Return the queues that something takes messages from."""
    jobs = [QueueName.COMMIT, *(_QUEUES[each] for each in settings.stacks if each in _QUEUES)]
    tables = [each for each in settings.stacks if each in _OPERATIONS]
    return (
        *map(settings.names.queues, jobs),
        *map(settings.names.operation_queues, tables),
    )


def scheduled_functions(settings: DeploymentSettings) -> tuple[str, ...]:
    """Return the names of functions that are called by schedules: no queue has what they failed."""
    starter = [STARTER] if settings.has_tasks else []
    batcher = ["batcher-create-jobs"] if settings.has("IngestBatcherStack") else []
    triggers = [f"{_OPERATIONS[each]}-trigger" for each in settings.stacks if each in _OPERATIONS]
    return tuple(map(settings.names.function, (*starter, *batcher, *triggers)))


def queue_functions(settings: DeploymentSettings) -> tuple[str, ...]:
    """Return the names of functions that are called with messages of queues."""
    of_stacks = {"QueryStack": "query", "IngestBatcherStack": "batcher-submit", **_OPERATIONS}
    named = [of_stacks[each] for each in settings.stacks if each in of_stacks]
    return tuple(map(settings.names.function, ("committer", *named)))
