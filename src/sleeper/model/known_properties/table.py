"""The properties of a table: typed groups, and others that are known by name only.

The field of a group is the only place that declares a property's name, default, type and meaning.
An instance may set another default for most of them, as `sleeper.default.table.<name>`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sleeper.model.jobs.kinds import QUEUES_OF_BATCHER
from sleeper.model.known_properties.kinds import (
    BOOLEAN,
    BYTE_SIZE,
    JAVA_ITERATOR,
    NOT_NEGATIVE,
    POSITIVE,
    TEXT,
    Property,
    one_of,
    properties_of,
    setting,
)
from sleeper.model.known_properties.maintenance import (
    STATE_MOVE_PROPERTY,
    CompactionProperties,
    GarbageProperties,
    SplittingProperties,
)
from sleeper.model.known_properties.state_store import StateStoreProperties
from sleeper.model.known_properties.upstream import ASYNC_COMMIT_SWITCH, UPSTREAM_TABLE_PROPERTIES

CODEC: Final = one_of("uncompressed", "snappy", "gzip", "brotli", "lz4", "zstd")
INGEST_QUEUE: Final = one_of(*QUEUES_OF_BATCHER)


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionProperties:
    """Name, schema and processing of a table. An instance has no defaults for these."""

    name: str | None = setting(
        "table.name", None, TEXT, "Unique within the instance.", editable=False, required=True
    )
    table_id: str | None = setting(
        "table.id", None, TEXT, "Made once, when the table is created.", editable=False
    )
    online: bool = setting(
        "table.online",
        "true",
        BOOLEAN,
        "False stops background work; ingest and queries still work.",
    )
    schema_json: str | None = setting(
        "table.schema", None, TEXT, "Row keys, sort keys and values, as JSON.", editable=False
    )
    iterator_class_name: str | None = setting(
        "table.iterator.class.name",
        None,
        JAVA_ITERATOR,
        "Upstream's processing in Java, which is refused here: see sleeper.table.function.",
    )
    iterator_config: str | None = setting(
        "table.iterator.config", None, TEXT, "Upstream's, for its iterators.", used=False
    )
    filters: str | None = setting(
        "table.filters", None, TEXT, "Which rows are dropped when read: ageOff(field,ms)."
    )
    aggregations: str | None = setting(
        "table.aggregations",
        None,
        TEXT,
        "How rows of equal row and sort keys become one: op(field),... for every value field, with "
        "op one of sum, min, max, map_sum, map_min, map_max, count, first, last. With first or "
        "last, all rows of a row key become one: its values and sort keys are those of the row "
        "with the least (first) or greatest (last) sort key; of rows that tie, any one. count "
        "says how many rows had a value when they came in; rows that were there before it was "
        "set keep the number they have. Only first, last and count take nullable fields.",
    )
    function: str | None = setting(
        "table.function",
        None,
        TEXT,
        "A Python function that changes rows when read, package.module:function. It is called "
        "with an iterator of pyarrow.RecordBatch in key order, after filters and aggregations, in "
        "ingest, compaction, query and export, and yields batches of the same schema and order. It "
        "may drop and unite rows and change values, not row keys; it must read all batches, work "
        "on any part of the rows, and give the same where parts are put together and done again. "
        "Processes that read or write the table need the module on PYTHONPATH, or installed, and "
        'must allow it: connect(..., allow_functions=["package.*"]) in Python, the variable '
        "SLEEPER_ALLOW_FUNCTIONS (modules or patterns, with commas between them) for the command "
        "line. Spark's workers run what the driver allows.",
        since="ours",
    )
    splits_file: str | None = setting(
        "table.splits.file", None, TEXT, "File of split points to create the table with."
    )
    splits_base64_encoded: bool = setting(
        "table.splits.base64.encoded", "false", BOOLEAN, "True when its strings are base64."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetProperties:
    """Layout of data files."""

    row_group_bytes: int = setting(
        "table.parquet.rowgroup.size", "8388608", BYTE_SIZE, "Bytes in a row group, about."
    )
    row_group_rows: int = setting(
        "table.parquet.rowgroup.rows.max",
        "32768",
        POSITIVE,
        "Rows in a row group, at most. Merging many files needs memory for one of each.",
    )
    page_bytes: int = setting("table.parquet.page.size", "131072", BYTE_SIZE, "Bytes in a page.")
    page_rows: int = setting(
        "table.parquet.page.rows",
        "1000",
        POSITIVE,
        "Rows in a page, at most. Small pages make look-ups by key quick.",
        since="ours",
    )
    compression: str | None = setting(
        "table.parquet.compression.codec",
        None,
        CODEC,
        "How the pages of all columns are compressed. Without it each column has a codec by its "
        "type: whole numbers that are no row keys lz4 (raw blocks), others zstd.",
    )
    dictionary_row_keys: bool = setting(
        "table.parquet.dictionary.encoding.rowkey.fields",
        "false",
        BOOLEAN,
        "Dictionaries for row key columns.",
    )
    dictionary_sort_keys: bool = setting(
        "table.parquet.dictionary.encoding.sortkey.fields",
        "false",
        BOOLEAN,
        "Dictionaries for sort key columns.",
    )
    dictionary_values: bool = setting(
        "table.parquet.dictionary.encoding.value.fields",
        "false",
        BOOLEAN,
        "Dictionaries for value columns.",
    )
    writer_version: str = setting(
        "table.parquet.writer.version", "v2", one_of("v1", "v2"), "Version of the data pages."
    )
    bloom_filter: bool = setting(
        "table.parquet.bloom.filter",
        "true",
        BOOLEAN,
        "Bloom filters for row key columns: a look-up seldom reads a page that lacks its key.",
        since="ours",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryProperties:
    """Settings of queries."""

    cache_timeout_s: int = setting(
        "table.query.processor.cache.timeout.seconds",
        "60",
        NOT_NEGATIVE,
        "How old the state may be that a query reads, where looking costs a request.",
        used=False,
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
        "table.ingest.memory", "1G", BYTE_SIZE, "Memory for sorting in one ingest.", since="ours"
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
        "each million rows or 128 MiB of the input is enough, and 256 are the most.",
    )
    splitting_attempts: int = setting(
        "table.bulk.import.partition.splitting.attempts",
        "3",
        POSITIVE,
        "How often extending the tree is tried.",
    )


TABLE_PROPERTIES: Final[tuple[Property, ...]] = (
    *properties_of("Definition", DefinitionProperties),
    STATE_MOVE_PROPERTY,
    *properties_of("Data files", ParquetProperties, inherits=True),
    *properties_of("Queries", QueryProperties, inherits=True),
    *properties_of("Partition splitting", SplittingProperties, inherits=True),
    *properties_of("Garbage collection", GarbageProperties, inherits=True),
    *properties_of("Compaction", CompactionProperties, inherits=True),
    *properties_of("State store", StateStoreProperties, inherits=True),
    *ASYNC_COMMIT_SWITCH,
    *properties_of("Asynchronous commits", AsyncCommitProperties, inherits=True),
    *properties_of("Ingest", IngestProperties, inherits=True),
    *properties_of("Ingest batcher", BatcherProperties, inherits=True),
    *properties_of("Bulk import", BulkImportProperties, inherits=True),
    *UPSTREAM_TABLE_PROPERTIES,
)
