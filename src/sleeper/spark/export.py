"""Export by Spark: rows of a table as Parquet files of the user's own, written by the workers."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sleeper.engine.writing.export import ExportedFiles, ExportedPart, ExportTarget, Progress
from sleeper.errors import ObjectNotFound, StorageFailed
from sleeper.ports.objects import Objects
from sleeper.spark.data_source.open_table import TableFiles, cached_table_reader
from sleeper.spark.data_source.reader import LeavesTask, read_task
from sleeper.spark.separate_jobs import run_separately
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
    parts = [_Part.of(part, plan, table, now_ms) for part in plan.parts]

    def written() -> Generator[ExportedPart]:
        yield from _written(spark, parts, target, title)
        _check_there(parts, target.place)

    return target.write_all(plan, written(), progress)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A part that is to be written."""

    name: str
    leaves: LeavesTask

    @classmethod
    def of(cls, part: PlannedPart, plan: ExportPlan, table: TableFiles, now_ms: int) -> _Part:
        arrow_schema = cached_table_reader(table).arrow_schema
        chosen = pa.schema([arrow_schema.field(name) for name in plan.columns])
        leaves = LeavesTask(table=table, groups=part.groups, arrow_schema=chosen, now_ms=now_ms)
        return cls(name=part.name, leaves=leaves)


def _written(
    spark: SparkSession, parts: Sequence[_Part], target: ExportTarget, title: str
) -> Generator[ExportedPart]:
    outcome: Any = run_separately(
        spark,
        parts,
        partial(_write_part, target=target),
        describe=lambda part: f"{title}: {part.name}",
    )
    try:
        for each in outcome:
            if each.failure is not None:
                raise each.failure
            yield ExportedPart(name=each.piece.name, row_count=each.result)
    finally:
        outcome.close()


def _write_part(part: _Part, target: ExportTarget) -> int:
    return target.write_part(part.name, read_task(part.leaves), part.leaves.arrow_schema)


def _check_there(parts: Sequence[_Part], place: Objects) -> None:
    """See that this process finds every part: workers may have written to disks of their own."""
    try:
        for part in parts:
            place.size(part.name)
    except ObjectNotFound as error:
        raise StorageFailed(
            f"Spark's workers wrote files that this process does not find ({error}). Workers and "
            "driver must reach the export's place alike: use an object store, a shared file "
            "system, or local mode"
        ) from None
