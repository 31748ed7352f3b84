"""The properties of a table for ingest, the batcher, bulk import and asynchronous commits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sleeper.model.jobs.kinds import QUEUES_OF_BATCHER
from sleeper.model.known_properties.value_kinds import (
    BOOLEAN,
    BYTE_SIZE,
    NOT_NEGATIVE,
    POSITIVE,
    Property,
    one_of,
    setting,
)

INGEST_QUEUE: Final = one_of(*QUEUES_OF_BATCHER)
ASYNC_COMMIT_SWITCH: Final = Property(
    "sleeper.table.statestore.commit.async.enabled",
    None,
    BOOLEAN,
    "Workers of ingest and bulk import jobs commit through the committer.",
    group="Asynchronous commits",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AsyncCommitProperties:
    """Which commits are sent to the committer, if one runs (`TableProperties.async_commits`)."""

    ingest: bool = setting(
        "table.ingest.job.files.commit.async", "true", BOOLEAN, "Files of ingest jobs."
    )
    bulk_import: bool = setting(
        "table.bulk.import.job.files.commit.async",
        "true",
        BOOLEAN,
        "Files of bulk import jobs. A driver on a cluster commits by itself.",
    )
    compaction_assignment: bool = setting(
        "table.compaction.job.id.assignment.commit.async",
        "true",
        BOOLEAN,
        "Locks of compaction jobs on their files.",
        used=False,
    )
    compaction: bool = setting(
        "table.compaction.job.commit.async",
        "true",
        BOOLEAN,
        "Results of compaction jobs.",
        used=False,
    )
    splitting: bool = setting(
        "table.partition.splitting.commit.async",
        "true",
        BOOLEAN,
        "Splits of partitions.",
        used=False,
    )
    garbage: bool = setting("table.gc.commit.async", "true", BOOLEAN, "Deleted files.", used=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestProperties:
    """Settings of ingest."""

    memory_bytes: int = setting(
        "table.ingest.memory",
        "1G",
        BYTE_SIZE,
        "Memory for sorting in one ingest, at most, beside about 350 MB that the process uses "
        "otherwise. Less is used if the process may not use so much.",
        since="ours",
    )
    file_writing_strategy: str = setting(
        "table.ingest.file.writing.strategy",
        "by_size",
        one_of("by_size", "one_file_per_leaf", "one_reference_per_leaf"),
        "A file in each leaf that gets rows, or one file that all of them reference. by_size, "
        "which is ours, writes one file for four leaves or more that get at most 64 KiB each on "
        "average and 8 MiB together, in memory, and a file in each leaf otherwise.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BatcherProperties:
    """Settings of the ingest batcher."""

    job_min_bytes: int = setting(
        "table.ingest.batcher.job.min.size", "1G", BYTE_SIZE, "Bytes a job waits for."
    )
    job_max_bytes: int = setting(
        "table.ingest.batcher.job.max.size", "5G", BYTE_SIZE, "Bytes in a job, at most."
    )
    job_min_files: int = setting(
        "table.ingest.batcher.job.min.files",
        "1",
        NOT_NEGATIVE,
        "Files a job waits for.",
    )
    job_max_files: int = setting(
        "table.ingest.batcher.job.max.files",
        "100",
        POSITIVE,
        "Files in a job, at most.",
    )
    file_age_max_s: int = setting(
        "table.ingest.batcher.file.max.age.seconds",
        "300",
        POSITIVE,
        "No file waits longer.",
    )
    ingest_queue: str = setting(
        "table.ingest.batcher.ingest.queue",
        "bulk_import_emr_serverless",
        INGEST_QUEUE,
        "The queue that jobs are sent to, which names their platform. A platform that the "
        "instance's properties do not describe is the worker's own machine, and so is bulk_import, "
        "which is ours. sleeper batcher report shows where jobs run.",
    )
    tracking_minutes: int = setting(
        "table.ingest.batcher.file.tracking.ttl.minutes",
        "10080",
        POSITIVE,
        "How long one can ask which job a file went to.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkImportProperties:
    """Settings of bulk import: how it splits the table."""

    min_leaf_partitions: int = setting(
        "table.bulk.import.min.leaf.partitions",
        "256",
        POSITIVE,
        "With fewer leaf partitions the tree is extended first. If it is not set, a leaf for "
        "each million rows or 128 MiB of the input is enough; beyond 4096, one for each 8 million "
        "rows or 1 GiB.",
    )
    splitting_attempts: int = setting(
        "table.bulk.import.partition.splitting.attempts",
        "3",
        POSITIVE,
        "How often extending the tree is tried.",
    )
