"""Exports rows in this process: one file after the other, as a stream."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pyarrow as pa

from sleeper.engine.read_leaves import TableReader, read_leaves
from sleeper.engine.writing.export import Exported, ExportedPart, ExportTarget, Progress
from sleeper.state.plans.exports import ExportPlan, PlannedPart


def export(
    reading: TableReader,
    plan: ExportPlan,
    target: ExportTarget,
    *,
    now_ms: int,
    progress: Progress = lambda done, total: None,
) -> Exported:
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
