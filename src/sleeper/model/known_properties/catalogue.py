"""Every property that Sleeper knows by name.

Groups declare properties; here they are listed under their headings. Only who sets, checks or
lists properties needs them all: who reads a value needs its group (`typed`). `checks` has what is
checked before properties are stored.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from sleeper.model.known_properties.cloud import CloudProperties, LambdaProperties, TaskProperties
from sleeper.model.known_properties.clusters import ClusterProperties
from sleeper.model.known_properties.deployment import DEPLOYMENT_PROPERTIES
from sleeper.model.known_properties.ingest import (
    ASYNC_COMMIT_SWITCH,
    AsyncCommitProperties,
    BatcherProperties,
    BulkImportProperties,
    IngestProperties,
)
from sleeper.model.known_properties.instance import (
    ClockProperties,
    CommitProperties,
    GeneralProperties,
)
from sleeper.model.known_properties.jobs import (
    BatcherRunProperties,
    CommitterProperties,
    CompactionWorkerProperties,
    ExportQueueProperties,
    IngestQueueProperties,
    JobProperties,
    QueryQueueProperties,
    TrackerProperties,
)
from sleeper.model.known_properties.maintenance import (
    CompactionProperties,
    GarbageProperties,
    GarbageRunProperties,
    PublishProperties,
    SplittingProperties,
    SplittingRunProperties,
)
from sleeper.model.known_properties.state_store import STATE_MOVE_PROPERTY, StateStoreProperties
from sleeper.model.known_properties.table import (
    DefinitionProperties,
    ParquetProperties,
    QueryProperties,
)
from sleeper.model.known_properties.upstream import (
    UPSTREAM_INSTANCE_PROPERTIES,
    UPSTREAM_TABLE_PROPERTIES,
)
from sleeper.model.known_properties.value_kinds import Property, gathered, properties_of

INSTANCE_PROPERTIES: Final[tuple[Property, ...]] = gathered(
    (
        *properties_of("General", GeneralProperties),
        *properties_of("Table state", CommitProperties),
        *properties_of("Clocks", ClockProperties),
        *properties_of("Partition splitting", SplittingRunProperties),
        *properties_of("Garbage collection", GarbageRunProperties),
        *properties_of("Jobs", JobProperties),
        *properties_of("Table state", CommitterProperties),
        *properties_of("Standard ingest", IngestQueueProperties),
        *properties_of("Ingest batcher", BatcherRunProperties),
        *properties_of("Compaction", CompactionWorkerProperties),
        *properties_of("Queries", QueryQueueProperties),
        *properties_of("Bulk export", ExportQueueProperties),
        *properties_of("Trackers", TrackerProperties),
        *properties_of("Deployment", CloudProperties),
        *properties_of("Workers on Fargate", TaskProperties),
        *properties_of("Lambda functions", LambdaProperties),
        *properties_of("Clusters of a deployment", ClusterProperties),
        *DEPLOYMENT_PROPERTIES,
        *UPSTREAM_INSTANCE_PROPERTIES,
    )
)

TABLE_PROPERTIES: Final[tuple[Property, ...]] = (
    *properties_of("Definition", DefinitionProperties),
    STATE_MOVE_PROPERTY,
    *properties_of("Data files", ParquetProperties, inherits=True),
    *properties_of("Queries", QueryProperties, inherits=True),
    *properties_of("Partition splitting", SplittingProperties, inherits=True),
    *properties_of("Garbage collection", GarbageProperties, inherits=True),
    *properties_of("Publishing", PublishProperties, inherits=True),
    *properties_of("Compaction", CompactionProperties, inherits=True),
    *properties_of("State store", StateStoreProperties, inherits=True),
    ASYNC_COMMIT_SWITCH,
    *properties_of("Asynchronous commits", AsyncCommitProperties, inherits=True),
    *properties_of("Ingest", IngestProperties, inherits=True),
    *properties_of("Ingest batcher", BatcherProperties, inherits=True),
    *properties_of("Bulk import", BulkImportProperties, inherits=True),
    *UPSTREAM_TABLE_PROPERTIES,
)

INSTANCE_PROPERTIES_BY_NAME: Final = {known.name: known for known in INSTANCE_PROPERTIES} | {
    known.instance_default: replace(
        known,
        name=known.instance_default,
        description=f"Default of {known.name}: {known.description}",
        group=f"Defaults for tables: {known.group}",
        editable=True,
        instance_default=None,
    )
    for known in TABLE_PROPERTIES
    if known.instance_default
}

"""The properties of an instance, and its defaults for tables."""
KNOWN_INSTANCE_PROPERTIES: Final[tuple[Property, ...]] = tuple(INSTANCE_PROPERTIES_BY_NAME.values())
TABLE_PROPERTIES_BY_NAME: Final = {known.name: known for known in TABLE_PROPERTIES}
