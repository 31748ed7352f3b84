"""Export as a user calls it: rows of a table as Parquet files of one's own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from sleeper.engine.writing.atomic_directory import atomic_directory
from sleeper.engine.writing.exported_parts import Exported, ExportTarget, Progress
from sleeper.errors import DataDamaged, UrlInvalid
from sleeper.model.object_stores import is_bucket_url, split_url
from sleeper.model.queries import NOT_GIVEN, NotGiven, RegionRequest, checked_as_of
from sleeper.operations.export import export as write_parts
from sleeper.operations.old_versions import deletions_reported
from sleeper.planning.exports import ExportPlan, plan_export
from sleeper.spark.export import export_by_spark
from sleeper.storage.local.folder import FolderObjects
from sleeper.storage.objectstore.client import Client
from sleeper.storage.objectstore.objects import BucketObjects
from sleeper.table.handle import OpenedTable, TableHandle
from sleeper.table.spark import asked_regions_of, open_for_spark

if TYPE_CHECKING:  # an extra, and slow to import
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportResult:
    """What an export wrote.

    Attributes:
        files: Names of the files in the target, in key order. There is always one: without
            rows where there are none, so that its columns are known.
        rows: Rows in all files.
        transaction: The number of the table's state that was exported.
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
    columns: Sequence[str] | None = None,
    as_of: int | None = None,
    spark: SparkSession | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> ExportResult:
    """Write rows to Parquet files, in key order; everything without a range.

    Rows are as `query` returns them: filtered and aggregated. Files are `part-00000.parquet`
    and so on. A leaf's rows lie in one of them, and small neighbours share one. `ingest` and
    `bulk_import` take the folder as it is. A folder appears at once, when all is written; in
    a bucket the file `_SUCCESS` comes last. If anything fails, nothing is left there.

    Args:
        target: A folder that does not exist yet, or an empty one; or `s3://bucket/folder`,
            with nothing in it.
        range, regions, columns, as_of: As for `query`.
        spark: A session, classic or Connect, whose workers write the files side by side.
            They must reach the instance and the target by the same paths or URLs. Without
            one this process writes them, one by one, in the memory that a query takes.
        progress: Called after each file with the files done, and how many there will be.

    Raises:
        QueryInvalid: a field, value, range or column does not fit the schema.
        VersionNotFound: there is no transaction `as_of`, or its files were deleted.
        AlreadyExists: something is at the target already.
        UrlInvalid: the target is neither a folder nor in a bucket.
        DataDamaged: a file of the table is missing or wrong.
        StorageFailed: the target cannot be written; StorageFull, where it is full.
        TableNotFound: the table was deleted.
        MissingExtra: the target is in a bucket; `sleeper-store[objectstore]` is not installed.
        BadRequest: Spark is asked to read an instance in memory.

    Source: rules EXP-2, EXP-3.
    """
    started = self._context.now()
    asked = asked_regions_of(self, NOT_GIVEN, NOT_GIVEN, range, regions)
    place, number = _target_text(target), checked_as_of(as_of)
    opened = self._current()
    store = opened.store
    state = store.refresh() if number is None else store.at(number)
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
    self: TableHandle, target: str, write: Callable[[ExportTarget], Exported]
) -> Exported:
    export_id = self._context.new_id()
    try:
        if is_bucket_url(target):
            bucket, folder = split_url(target)
            objects = BucketObjects(Client(bucket, self._context.inputs.settings))
            return write(ExportTarget(place=objects.under(folder), export_id=export_id))
        with atomic_directory(_folder(target), export_id) as unfinished:
            return write(ExportTarget(place=FolderObjects(unfinished), export_id=export_id))
    except DataDamaged:
        self._current()  # whoever deletes a table takes its files away
        raise


def _target_text(target: object) -> str:
    if not isinstance(target, str | bytes | os.PathLike):
        raise UrlInvalid(
            f"cannot export to {target!r}: a target is a folder, file:// and a path, or "
            "s3://bucket/folder"
        )
    return os.fsdecode(target)


def _folder(target: str) -> Path:
    scheme, separator, _ = target.partition("://")
    if separator and scheme.lower() == "file":
        target = unquote(urlsplit(target).path)
    if not target.strip() or (separator and scheme.lower() != "file"):
        raise UrlInvalid(
            f"cannot export to {target!r}: a target is a folder, file:// and a path, or "
            "s3://bucket/folder"
        )
    return Path(target).expanduser()
