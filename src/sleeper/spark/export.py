"""Export by Spark: rows of a table as Parquet files of the user's own, written by the workers."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from sleeper.engine.writing.export import ExportedFiles, ExportedPart, ExportTarget, Progress
from sleeper.errors import StorageFailed
from sleeper.ports.objects import Objects
from sleeper.spark.data_source.open_table import TableFiles, cached_table_reader
from sleeper.spark.data_source.reader import LeavesTask, read_task
from sleeper.spark.piece_jobs import results_by_spark
from sleeper.state.plans.exports import ExportPlan, PlannedPart

if TYPE_CHECKING:  # an extra, and slow to import
    from pyspark.sql import SparkSession


def export_by_spark(
    spark: SparkSession,
    table: TableFiles,
    plan: ExportPlan,
    target: ExportTarget,
    *,
    title: str,
    now_ms: int,
    progress: Progress = lambda done, total: None,
) -> ExportedFiles:
    """Write the rows of a plan, processed, as Parquet files; `_SUCCESS` comes last.

    Each part is written by one task and appears when it is complete; a task that Spark runs twice
    writes the same part twice. A task's memory is that of a merge of its leaf's files, and 100,000
    rows. Parts are deleted if anything fails, but for those of a process that is killed.

    Args:
        spark: Any session, classic or Connect, whose workers reach table and target.
        table: The table's files, and the processing to apply.
        plan: What to export.
        target: Where to: an empty folder of any storage.
        title: What the Spark jobs are called on Spark's web page.
        now_ms: The present, in milliseconds since 1970, for filters by age.
        progress: Called with how many parts are done, and of how many.

    Raises:
        AlreadyExists: there is something in the target.
        DataDamaged: a file of the table is missing or wrong.
        StorageFailed: storage failed, or workers write where this process cannot see it.
        Exception: Spark's own, where a task failed as often as it may be tried.
    """
    arrow_schema = cached_table_reader(table).arrow_schema
    write = _WritePart(
        table=table,
        target=target,
        arrow_schema=pa.schema([arrow_schema.field(name) for name in plan.columns]),
        now_ms=now_ms,
    )

    def written() -> Generator[ExportedPart]:
        yield from _written(spark, plan.parts, write, title)
        _check_there(plan.parts, target.place)

    return target.write_all(plan, written(), progress)


@dataclass(frozen=True, slots=True, kw_only=True)
class _WritePart:
    """Writes a part, in a task; returns its rows. What all parts share."""

    table: TableFiles
    target: ExportTarget
    arrow_schema: pa.Schema
    now_ms: int

    def __call__(self, part: PlannedPart) -> int:
        leaves = LeavesTask(
            table=self.table,
            groups=part.groups,
            arrow_schema=self.arrow_schema,
            now_ms=self.now_ms,
        )
        return self.target.write_part(part.name, read_task(leaves), self.arrow_schema)


def _written(
    spark: SparkSession, parts: Sequence[PlannedPart], write: _WritePart, title: str
) -> Generator[ExportedPart]:
    def describe(some: Sequence[PlannedPart]) -> str:
        return f"{title}: {some[0].name} to {some[-1].name}"

    results = results_by_spark(spark, parts, write, describe=describe)
    with closing(results):
        for part, row_count in results:
            yield ExportedPart(name=part.name, row_count=row_count)


def _check_there(parts: Sequence[PlannedPart], place: Objects) -> None:
    """See that this process finds every part: workers may have written to disks of their own."""
    found = {each.key for each in place.listing()}
    missing = next((part.name for part in parts if part.name not in found), None)
    if missing is not None:
        raise StorageFailed(
            f"Spark's workers wrote files that this process does not find ({place.url(missing)}). "
            "Workers and driver must reach the export's place alike: use an object store, a shared "
            "file system, or local mode"
        )
