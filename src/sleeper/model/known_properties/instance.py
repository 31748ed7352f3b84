"""The properties of an instance: typed groups, and others that are known by name only.

Defaults for tables are not declared here: every `sleeper.default.table.<name>` is derived from
the table property `sleeper.table.<name>`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sleeper.model.known_properties.cloud import CloudProperties, LambdaProperties, TaskProperties
from sleeper.model.known_properties.clusters import ClusterProperties
from sleeper.model.known_properties.deployment import DEPLOYMENT_PROPERTIES
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
from sleeper.model.known_properties.kinds import (
    BOOLEAN,
    INSTANCE_ID,
    NOT_NEGATIVE,
    POSITIVE,
    Property,
    gathered,
    one_of,
    properties_of,
    setting,
)
from sleeper.model.known_properties.upstream import UPSTREAM_INSTANCE_PROPERTIES


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneralProperties:
    """The instance's id and format."""

    instance_id: str | None = setting(
        "id",
        None,
        INSTANCE_ID,
        "Names the instance and all its resources.",
        editable=False,
        required=True,
    )
    format_version: int = setting(
        "format.version",
        "1",
        POSITIVE,
        "How the instance's files are laid out.",
        since="ours",
        editable=False,
    )
    properties_version: int = setting(
        "properties.version",
        "0",
        NOT_NEGATIVE,
        "How often the instance's properties were changed. Sleeper counts it.",
        since="ours",
        editable=False,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitProperties:
    """Settings of commits, for tables that do not set their own."""

    async_behaviour: str = setting(
        "default.table.statestore.commit.async.behaviour",
        "PER_IMPLEMENTATION",
        one_of("PER_IMPLEMENTATION", "DISABLED", "ALL_IMPLEMENTATIONS"),
        "Whether jobs commit through the committer: only ALL_IMPLEMENTATIONS says yes, as our "
        "state stores need none.",
    )
    read_back: str = setting(
        "statestore.commit.read.back",
        "auto",
        one_of("auto", "always", "never"),
        "Whether each log entry is read again after it was committed, and compared; auto: "
        "where an object store is not Amazon's own.",
        since="ours",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockProperties:
    """Limits on the difference between clocks."""

    skew_max_minutes: int = setting(
        "clock.skew.max.minutes",
        "10",
        POSITIVE,
        "A writer whose clock is further ahead of the storage's is refused.",
        since="ours",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SplittingRunProperties:
    """Limits of one run of partition splitting."""

    period_minutes: int = setting(
        "partition.splitting.period.minutes",
        "30",
        POSITIVE,
        "How often leaves are looked at.",
    )
    sketch_files_max: int = setting(
        "partition.splitting.files.maximum", "50", POSITIVE, "Files whose sketches are read."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GarbageRunProperties:
    """Limits of one run of the garbage collector."""

    period_minutes: int = setting(
        "gc.period.minutes", "15", POSITIVE, "How often garbage is collected."
    )
    batch_files: int = setting("gc.batch.size", "10000", POSITIVE, "Files forgotten in a commit.")
    files_max: int = setting("gc.files.maximum", "750000", POSITIVE, "Files deleted in a run.")
    offline_tables: bool = setting(
        "run.gc.offline", "false", BOOLEAN, "Offline tables too.", used=False
    )


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
