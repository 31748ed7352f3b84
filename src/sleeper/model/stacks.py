"""The stacks of an instance in AWS: their names, and which of them a user chooses."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class StackName(StrEnum):
    """What a stack is; the same for every instance. In the order in which they are deployed."""

    INSTANCE = "InstanceStack"
    QUEUES = "QueuesStack"
    PROPERTIES = "PropertiesStack"
    POLICIES = "PoliciesStack"
    COMMITTER = "StateStoreCommitterStack"
    WORKERS = "WorkersStack"
    INGEST = "IngestStack"
    BATCHER = "IngestBatcherStack"
    EMR_SERVERLESS = "EmrServerlessBulkImportStack"
    EMR = "EmrBulkImportStack"
    PERSISTENT_EMR = "PersistentEmrBulkImportStack"
    EKS = "EksBulkImportStack"
    EXPORT = "BulkExportStack"
    QUERY = "QueryStack"
    COMPACTION = "CompactionStack"
    GARBAGE = "GarbageCollectorStack"
    SPLITTING = "PartitionSplittingStack"
    DASHBOARD = "DashboardStack"
    METRICS = "TableMetricsStack"
    ALARMS = "AlarmsStack"


_ALWAYS: Final = (
    StackName.INSTANCE,
    StackName.QUEUES,
    StackName.PROPERTIES,
    StackName.POLICIES,
    StackName.COMMITTER,
    StackName.WORKERS,
    StackName.ALARMS,
)

OPTIONAL_STACKS: Final[tuple[StackName, ...]] = tuple(
    each for each in StackName if each not in _ALWAYS
)
"""The parts of a deployment that can be chosen, in the order in which they are deployed."""

_ON_DEMAND: Final = (
    StackName.EMR,
    StackName.PERSISTENT_EMR,
    StackName.EKS,
    StackName.EXPORT,
    StackName.DASHBOARD,  # three dollars a month, more than all else that is idle
)

DEFAULT_STACKS: Final[tuple[StackName, ...]] = tuple(
    each for each in OPTIONAL_STACKS if each not in _ON_DEMAND
)
"""Those that are deployed where nothing else is said."""

STACKS_OF_OTHERS: Final = {
    "EmrStudioStack": "use the console of EMR Serverless to watch Spark",
    "WebSocketQueryStack": "send queries to the queue of QueryStack, or run `sleeper server`",
    "AthenaStack": "use `sleeper sql`, or export a table and query its files",
    "KeepLambdaWarmStack": "run `sleeper server` where answers must not wait for a lambda to start",
    "RestApiStack": "run `sleeper server`, which answers the same and more",
}
"""Upstream's stacks that there are none of here, and what to use instead."""
