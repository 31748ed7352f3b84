"""The properties of a table: its definition, its data files and queries.

The field of a group is the only place that declares a property's name, default, type and meaning.
An instance may set another default for most of them, as `sleeper.default.table.<name>`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sleeper.model.known_properties.value_kinds import (
    BOOLEAN,
    BYTE_SIZE,
    JAVA_ITERATOR,
    NOT_NEGATIVE,
    POSITIVE,
    TEXT,
    one_of,
    setting,
)

CODEC: Final = one_of("uncompressed", "snappy", "gzip", "brotli", "lz4", "zstd")


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
    sums_too_large: str = setting(
        "table.sums.too.large",
        "limit",
        one_of("limit", "refuse"),
        "What a query gets for a sum of decimals that has more digits than its field: limit, the "
        "nearest value of the type, with a warning in the log; or refuse, an error.",
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
        "How the pages of all columns are compressed. Without it each column of a file has the "
        "codec that suits its first rows, lz4 (raw blocks) or zstd.",
    )
    dictionary_row_keys: bool | None = setting(
        "table.parquet.dictionary.encoding.rowkey.fields",
        None,
        BOOLEAN,
        "Dictionaries for row key columns whose values fit into 16 KiB. Without it there are none.",
    )
    dictionary_sort_keys: bool | None = setting(
        "table.parquet.dictionary.encoding.sortkey.fields",
        None,
        BOOLEAN,
        "Dictionaries for sort key columns whose values fit into 16 KiB. Without it, for those "
        "that are smaller with one.",
    )
    dictionary_values: bool | None = setting(
        "table.parquet.dictionary.encoding.value.fields",
        None,
        BOOLEAN,
        "Dictionaries for value columns whose values fit into 16 KiB. Without it, for those "
        "that are smaller with one.",
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
