"""`Table.export`: writes rows of a table to Parquet files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sleeper.engine.writing.export import Exported, ExportTarget, Progress, atomic_directory
from sleeper.errors import DataDamaged
from sleeper.model.queries import NOT_GIVEN, NotGiven, RegionRequest, checked_as_of
from sleeper.notebook_html import NotebookHtml
from sleeper.spark.export import export_by_spark
from sleeper.state.plans.exports import ExportPlan, plan_export
from sleeper.storage.places import checked_folder, objects_of
from sleeper.tables.export_rows import export as write_parts
from sleeper.tables.handle import OpenedTable, TableHandle
from sleeper.tables.spark import asked_regions_of, open_for_spark
from sleeper.tables.versions import deletions_reported, version_as_of

if TYPE_CHECKING:  # an extra, and slow to import
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportResult(NotebookHtml):
    """The result of an export.

    Attributes:
        files: Names of the files in the target, in key order. If there are no rows, there is
            one file without rows, which has the columns.
        rows: Rows in all files.
        transaction: The transaction number of the exported state.
        took_s: Seconds from the call to the last file.
    """

    files: tuple[str, ...]
    rows: int
    transaction: int
    took_s: float


def export(
    self: TableHandle,
    target: str | os.PathLike[str],
    *,
    range: RegionRequest | NotGiven = NOT_GIVEN,  # noqa: A002 - the field's own word
    regions: Iterable[RegionRequest] | NotGiven = NOT_GIVEN,
    prefix: Mapping[str, str | bytes] | NotGiven = NOT_GIVEN,
    columns: Sequence[str] | None = None,
    as_of: int | datetime | None = None,
    spark: SparkSession | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> ExportResult:
    """Write rows to Parquet files, in key order; all rows without a range or prefix.

    Rows are processed as by `query`: filtered and aggregated. Files are named
    `part-00000.parquet` and so on. The rows of a leaf are in one file, and small neighbouring
    leaves share a file. `ingest` and `bulk_import` accept the folder as input. A local folder
    becomes visible atomically when all files are written; in a bucket the file `_SUCCESS` is
    written last. If the export fails, its files are deleted.

    Args:
        target: A local folder that does not exist or is empty, or an empty `s3://bucket/folder`.
        range, regions, prefix, columns, as_of: As for `query`.
        spark: A session, classic or Connect, whose workers write the files in parallel.
            They must reach the instance and the target by the same paths or URLs. Without
            it this process writes them one by one, in the memory of a query.
        progress: Called after each file with the number of written files, and of all files.

    Raises:
        QueryInvalid: a field, value, range or column does not fit the schema.
        VersionNotFound: there is no transaction `as_of`, or its files were deleted.
        AlreadyExists: the target is not empty.
        UrlInvalid: the target is neither a folder nor in a bucket.
        DataDamaged: a file of the table is missing or wrong.
        StorageFailed: the target cannot be written; StorageFull if it is full.
        TableNotFound: the table was deleted.
        MissingExtra: the target is in a bucket; `sleeper-store[objectstore]` is not installed.
        BadRequest: the instance is in memory, and Spark cannot read it.

    Source: rules EXP-2, EXP-3.
    """
    started = self._context.now()
    asked = asked_regions_of(self, NOT_GIVEN, NOT_GIVEN, range, regions, prefix)
    place, version = checked_folder(target), checked_as_of(as_of)
    opened = self._current()
    store = opened.store
    state = version_as_of(store, version)
    plan = plan_export(state, self.schema, asked, columns=columns)
    write = _writer(self, opened, plan, spark, progress)
    with deletions_reported(state, store=store, files=opened.files):
        exported = _write_to(self, place, write)
    return ExportResult(
        files=tuple(part.name for part in exported.parts),
        rows=exported.row_count,
        transaction=exported.transaction,
        took_s=(self._context.now() - started).total_seconds(),
    )


def _writer(
    self: TableHandle,
    opened: OpenedTable,
    plan: ExportPlan,
    spark: SparkSession | None,
    progress: Progress,
) -> Callable[[ExportTarget], Exported]:
    now_ms = int(self._context.now().timestamp() * 1000)
    if spark is None:
        reading = opened.reader
        return partial(write_parts, reading, plan, now_ms=now_ms, progress=progress)
    files = open_for_spark(self).table_files
    return partial(
        export_by_spark,
        spark,
        files,
        plan,
        title=f"sleeper: export {self.name}",
        now_ms=now_ms,
        progress=progress,
    )


def _write_to(
    self: TableHandle, target: Path | str, write: Callable[[ExportTarget], Exported]
) -> Exported:
    export_id = self._context.new_id()
    stores = self._context.inputs.settings
    try:
        if isinstance(target, str):
            return write(ExportTarget(place=objects_of(target, stores), export_id=export_id))
        with atomic_directory(target, export_id) as unfinished:
            return write(ExportTarget(place=objects_of(unfinished, stores), export_id=export_id))
    except DataDamaged:
        self._current()  # raises TableNotFound if the table was deleted, and its files with it
        raise
