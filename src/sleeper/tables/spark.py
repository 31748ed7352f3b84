"""Gives a table to Spark: its rows as a DataFrame, and itself to the data source `sleeper`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from sleeper.engine.writing.write_settings import write_settings
from sleeper.errors import BadRequest
from sleeper.model.queries import NotGiven, RegionRequest, checked_as_of
from sleeper.spark.data_source.open_table import SparkTable, TableFiles
from sleeper.spark.data_source.schema import check_session
from sleeper.spark.frames import to_frame
from sleeper.tables.open_table import OpenTable
from sleeper.tables.query import regions_asked_for
from sleeper.tables.unchanged_since import UnchangedSince
from sleeper.tables.upsert import commit_upsert
from sleeper.tables.versions import version_as_of

if TYPE_CHECKING:  # an extra, and slow to import
    from pyspark.sql import DataFrame, SparkSession


def to_spark(
    table: OpenTable,
    spark: SparkSession,
    *,
    key: object,
    keys: Any,
    range: RegionRequest | NotGiven,  # noqa: A002 - the field's own word
    regions: Iterable[RegionRequest] | NotGiven,
    prefix: Mapping[str, str | bytes] | NotGiven,
    columns: Sequence[str] | None,
    as_of: int | datetime | None,
) -> DataFrame:
    """Return rows as a Spark DataFrame (`Table.to_spark`)."""
    version = checked_as_of(as_of)
    found = regions_asked_for(
        table.schema,
        table.arrow_schema,
        key=key,
        keys=keys,
        range=range,
        regions=regions,
        prefix=prefix,
    )
    state = version_as_of(table.store, version)
    table = table if version is None else table.as_of(state)
    source, context = open_for_spark(table), table.context
    check_session(spark, table.schema)
    options = {"instance": context.url, "table": table.name}
    if context.allow_functions:
        options["allow_functions"] = ",".join(context.allow_functions)
    return to_frame(
        spark,
        source.table_files,
        state,
        regions=found,
        columns=columns,
        options=options,
    )


def open_for_spark(table: OpenTable) -> SparkTable:
    """Return the description of a table that the data source `sleeper` needs.

    Raises:
        BadRequest: the instance is in memory.
    """
    context, properties = table.context, table.properties
    if context.url.startswith("memory:"):
        raise BadRequest(
            "Spark reads and writes in its own processes, and a memory:// instance exists in "
            "one process only: use a folder"
        )
    return SparkTable(
        table_files=TableFiles(
            url=table.files.url("data"),
            files=table.files,
            schema=table.schema,
            processing=table.reader.processing,
            temp_folder=context.temp_folder,
            stores=context.place.stores,
        ),
        store=table.store,
        log=table.store.log,
        write=write_settings(properties.parquet),
        memory_bytes=properties.ingest.memory_bytes,
        file_writing=properties.ingest.file_writing_strategy,
        job_id_kept=table.job_id_kept(),
        orphan_age=table.orphan_age(),
        now=context.clock.now,
        new_id=context.new_id,
        check_exists=table.check_exists,
        undo_commit_if_deleted=table.undo_commit_if_deleted,
        check_upsert=partial(table.reader.processing.check_upsert, table.name),
        commit_upsert=partial(commit_upsert, table, UnchangedSince.of(table, None)),
    )
