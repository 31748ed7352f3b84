"""`Table.to_spark`: reads rows as a Spark DataFrame."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from sleeper.engine.writing.data_file import write_settings
from sleeper.errors import BadRequest
from sleeper.lookup.key_batch import key_batch, key_rows
from sleeper.model.queries import (
    NOT_GIVEN,
    NotGiven,
    RegionRequest,
    asked_by,
    asked_regions,
    checked_as_of,
    key_region,
)
from sleeper.model.ranges import Region
from sleeper.spark.data_source.open_table import OpenTable, TableFiles
from sleeper.spark.frames import to_frame
from sleeper.tables.handle import TableHandle
from sleeper.tables.versions import version_as_of

if TYPE_CHECKING:  # an extra, and slow to import
    from pyspark.sql import DataFrame, SparkSession


def to_spark(
    self: TableHandle,
    spark: SparkSession,
    *,
    key: object = NOT_GIVEN,
    keys: Any = NOT_GIVEN,
    range: RegionRequest | NotGiven = NOT_GIVEN,  # noqa: A002 - the field's own word
    regions: Iterable[RegionRequest] | NotGiven = NOT_GIVEN,
    prefix: Mapping[str, str | bytes] | NotGiven = NOT_GIVEN,
    columns: Sequence[str] | None = None,
    as_of: int | datetime | None = None,
) -> DataFrame:
    """Return rows as a Spark DataFrame, in no order; all rows without a key or range.

    The DataFrame reads the table's current version, however late it is used. It uses Spark's
    own Parquet reader if the table has no processing and every file belongs to one leaf; then
    all columns are nullable, as always with Spark's Parquet. Otherwise the data source `sleeper`
    merges and processes the rows in Python. That takes more time and prunes no columns: name
    the columns that you need.

    For a bucket the data source is used too, unless the session's setting
    `spark.sleeper.s3.scheme` names the scheme by which its JVM reads `s3://`, such as `s3a`.

    Args:
        spark: A session, classic or Connect. Its workers must reach the instance's folder or
            bucket by the same URL, and be able to import `sleeper`.
        key: As for `query`.
        keys: As for `query`.
        range: As for `query`.
        regions: As for `query`.
        prefix: As for `query`.
        columns: As for `query`.
        as_of: As for `query`.

    Raises:
        QueryInvalid: a field, value, range or column does not fit the schema.
        VersionNotFound: there is no transaction `as_of`.
        TableNotFound: the table was deleted.
        BadRequest: the instance is in memory, and no other process can read it.
        MissingExtra: Python workers are needed, and their Python has no Sleeper or another
            version of it.

    Source: rule QRY-20.
    """
    version = checked_as_of(as_of)
    found = asked_regions_of(self, key, keys, range, regions, prefix)
    table = open_for_spark(self)
    options = {"instance": self._context.url, "table": self.name}
    if self._context.allow_functions:
        options["allow_functions"] = ",".join(self._context.allow_functions)
    state = version_as_of(table.store, version)
    return to_frame(
        spark,
        table.table_files,
        state,
        regions=found,
        columns=columns,
        options=options,
    )


def open_for_spark(self: TableHandle) -> OpenTable:
    """Return the description of this table that the data source `sleeper` needs.

    Raises:
        BadRequest: the instance is in memory.
        TableNotFound: the table was deleted.
    """
    if self._context.url.startswith("memory:"):
        raise BadRequest(
            "Spark reads and writes in its own processes, and a memory:// instance exists in "
            "one process only: use a folder"
        )
    opened, context = self._current(), self._context
    ingest_properties = opened.properties.ingest
    return OpenTable(
        table_files=TableFiles(
            url=opened.files.url("data"),
            files=opened.files,
            schema=self.schema,
            processing=opened.reader.processing,
            temp_folder=context.temp_folder,
            stores=context.inputs.settings,
        ),
        store=opened.store,
        log=opened.store.log,
        write=write_settings(opened.properties.parquet),
        memory_bytes=ingest_properties.memory_bytes,
        file_writing=ingest_properties.file_writing_strategy,
        job_id_kept=timedelta(days=opened.properties.statestore.job_id_retention_days),
        orphan_age=timedelta(minutes=opened.properties.gc.orphan_age_minutes),
        now=context.now,
        new_id=context.new_id,
        check_exists=self._current,
        undo_commit_if_deleted=self._undo_commit_if_deleted,
    )


def asked_regions_of(
    self: TableHandle, key: object, keys: Any, key_range: object, regions: object, prefix: object
) -> list[Region]:
    """Return the regions that `key`, `keys`, `range`, `regions` and `prefix` request.

    Raises:
        QueryInvalid: several of the first four are given, one is None, a prefix is given with keys,
            or a value does not fit the schema.
    """
    asked = asked_by(key=key, keys=keys, range=key_range, regions=regions, prefix=prefix)
    if asked == "keys":
        whole = key_rows(key_batch(keys, self.schema, self.arrow_schema))
        return [key_region(self.schema, each) for each in whole]
    return asked_regions(self.schema, key_range, regions, key=key, prefix=prefix)
