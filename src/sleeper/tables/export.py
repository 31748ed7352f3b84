"""Export: writes rows of a table to Parquet files, in key order (rules EXP-2, EXP-3).

1. the version is found, and planned as parts: a part for each leaf, or some small neighbours; a
   large leaf is several parts, cut where the sketches of its files say (here, or in Spark's tasks)
2. each part is read as a query reads it, and written as one file: here, one after the other,
   or by Spark's workers in parallel
3. a local folder is renamed when all files are written; in a bucket `_SUCCESS` is written last.
   If the export fails, its files are deleted
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sleeper.engine.reading.read_leaves import TableReader, read_leaves
from sleeper.engine.sketches.leaf_keys import LeafFiles, leaf_keys
from sleeper.engine.writing.export import (
    ExportedFiles,
    ExportedPart,
    ExportTarget,
    Progress,
    atomic_directory,
)
from sleeper.errors import DataDamaged
from sleeper.html.values import NotebookHtml
from sleeper.model.partitions import Partition
from sleeper.model.queries import NotGiven, RegionRequest, checked_as_of
from sleeper.model.ranges import Region
from sleeper.model.schema import Schema
from sleeper.ports.objects import Objects
from sleeper.state.plans.exports import (
    ExportPlan,
    LeafToCut,
    PlannedPart,
    leaves_to_cut,
    plan_export,
)
from sleeper.state.table_state import TableState
from sleeper.storage.places import checked_folder, objects_of
from sleeper.tables.on_spark import batches_of, files_for_spark, run_batches
from sleeper.tables.open_table import OpenTable
from sleeper.tables.query import regions_asked_for
from sleeper.tables.versions import deletions_reported, version_as_of

if TYPE_CHECKING:  # an extra, and slow to import
    from pyspark.sql import SparkSession

_SKETCHES_OF_A_TASK = 200


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
    table: OpenTable,
    target: str | os.PathLike[str],
    *,
    range: RegionRequest | NotGiven,  # noqa: A002 - the field's own word
    regions: Iterable[RegionRequest] | NotGiven,
    prefix: Mapping[str, str | bytes] | NotGiven,
    columns: Sequence[str] | None,
    as_of: int | datetime | None,
    spark: SparkSession | None,
    progress: Progress,
) -> ExportResult:
    """Write rows to Parquet files (`Table.export`)."""
    clock = table.context.clock
    started = clock.now()
    asked = regions_asked_for(
        table.schema, table.arrow_schema, range=range, regions=regions, prefix=prefix
    )
    place, version = checked_folder(target), checked_as_of(as_of)
    state = version_as_of(table.store, version)
    table = table if version is None else table.as_of(state)
    cuts = _cuts(table, state, asked, spark)
    plan = plan_export(state, table.schema, asked, columns=columns, cuts=cuts)
    write = _writer(table, plan, spark, progress)
    with deletions_reported(state, store=table.store, files=table.files):
        exported = _write_to(table, place, write)
    return ExportResult(
        files=tuple(part.name for part in exported.parts),
        rows=exported.row_count,
        transaction=exported.transaction,
        took_s=(clock.now() - started).total_seconds(),
    )


def _cuts(
    table: OpenTable, state: TableState, regions: Sequence[Region], spark: SparkSession | None
) -> dict[str, list[Any]]:
    """Return where large leaves are cut, by their ids."""
    waiting = (
        (each, _leaf_files(table, state, each.leaf)) for each in leaves_to_cut(state, regions)
    )
    found: Iterator[tuple[Sequence[tuple[LeafToCut, LeafFiles]], list[list[Any]]]]
    if spark is None:
        found = (([each], _cuts_of([each], table.files, table.schema)) for each in waiting)
    else:
        run = partial(_cuts_of, files=files_for_spark(table), schema=table.schema)
        batches = batches_of(waiting, lambda each: len(each[1].references), _SKETCHES_OF_A_TASK)
        title = f"sleeper: export {table.name}, leaves to cut"
        found = run_batches(spark, batches, run, title=title)
    return {
        each.leaf.partition_id: cuts
        for batch, results in found
        for (each, _), cuts in zip(batch, results, strict=True)
    }


def _leaf_files(table: OpenTable, state: TableState, leaf: Partition) -> LeafFiles:
    """Return the largest files of a leaf and of its ancestors, as many as a split reads."""
    references = sorted(state.references_of(leaf.partition_id), key=lambda each: -each.row_count)
    most = table.context.properties.splitting.sketch_files_max
    return LeafFiles(leaf=leaf, references=tuple(references[:most]))


def _cuts_of(
    leaves: Sequence[tuple[LeafToCut, LeafFiles]], files: Objects, schema: Schema
) -> list[list[Any]]:
    found = []
    for each, of_leaf in leaves:
        keys = leaf_keys(of_leaf, files, schema)
        inside = each.leaf.region.ranges[0]
        found.append([] if keys is None else keys.cut_points(0, inside, each.parts))
    return found


def _writer(
    table: OpenTable,
    plan: ExportPlan,
    spark: SparkSession | None,
    progress: Progress,
) -> Callable[[ExportTarget], ExportedFiles]:
    now_ms = table.now_ms()
    if spark is None:
        return partial(write_parts, table.reader, plan, now_ms=now_ms, progress=progress)
    from sleeper.spark.export import export_by_spark
    from sleeper.tables.spark import open_for_spark

    files = open_for_spark(table).table_files
    return partial(
        export_by_spark,
        spark,
        files,
        plan,
        title=f"sleeper: export {table.name}",
        now_ms=now_ms,
        progress=progress,
    )


def _write_to(
    table: OpenTable, target: Path | str, write: Callable[[ExportTarget], ExportedFiles]
) -> ExportedFiles:
    export_id = table.context.new_id()
    stores = table.context.place.stores
    try:
        if isinstance(target, str):
            return write(ExportTarget(place=objects_of(target, stores), export_id=export_id))
        with atomic_directory(target, export_id) as unfinished:
            return write(ExportTarget(place=objects_of(unfinished, stores), export_id=export_id))
    except DataDamaged:
        table.check_exists()  # raises TableNotFound if the table was deleted, and its files with it
        raise


def write_parts(
    reading: TableReader,
    plan: ExportPlan,
    target: ExportTarget,
    *,
    now_ms: int,
    progress: Progress = lambda done, total: None,
) -> ExportedFiles:
    """Write the rows of a plan, processed, as Parquet files; `_SUCCESS` comes last.

    Needs the memory of a merge of one leaf's files, and of 100,000 rows.

    Args:
        reading: The table.
        plan: The rows, columns and files to export.
        target: Where to write.
        now_ms: The current time in milliseconds since 1970, for filters by age.
        progress: Called with the number of files that are done, and the number of all files.

    Raises:
        AlreadyExists: the target is not empty.
        DataDamaged: a file of the table is missing or wrong.
        StorageFailed: storage failed; written files were deleted.

    Source: rules EXP-2, EXP-3.
    """
    fields = [reading.arrow_schema.field(name) for name in plan.columns]
    arrow_schema = pa.schema(fields)

    def rows_of(part: PlannedPart) -> Iterator[pa.RecordBatch]:
        return read_leaves(reading, part.groups, plan.columns, now_ms=now_ms)

    def written() -> Generator[ExportedPart]:
        for part in plan.parts:
            row_count = target.write_part(part.name, rows_of(part), arrow_schema)
            yield ExportedPart(name=part.name, row_count=row_count)

    return target.write_all(plan, written(), progress)
