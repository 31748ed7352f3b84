"""Merges data files into one inside DataFusion, which reads, merges, processes and writes.

It writes a temp file, because it can write to no stream of ours. `finish_file` makes a data file of
it on the way to the table's folder. So the output needs its size once more, for a short time, in
the folder for temporary files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from errno import EDQUOT, ENOSPC
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

from sleeper.engine.native.column_options import copy_options, is_known_codec
from sleeper.engine.native.finished_file import finish_file
from sleeper.engine.native.plan_processing import is_plannable, merge_query
from sleeper.engine.native.plan_run import run_plan
from sleeper.engine.read import FAN_IN_MAX, FileSlice
from sleeper.engine.read_leaves import TableReader
from sleeper.engine.scan.failures import is_read_failure
from sleeper.engine.scan.merge import node_names, united
from sleeper.engine.scan.page_checksums import VerifiedFile
from sleeper.engine.writing.data_file import WriteSettings, WrittenFile, write_data_file
from sleeper.errors import StorageFailed, StorageFull
from sleeper.ports.objects import Output
from sleeper.value_classes import dataclass

_UNEVEN = 4
"""Row groups are of equally many rows, so the largest may have so many times the bytes that row
groups should have."""

_OS_ERROR = re.compile(r"\(os error (\d+)\)")
_SETTINGS = {
    # Rows that a filter drops are counted, so that the number of rows read can be compared.
    "datafusion.execution.parquet.pushdown_filters": "false",
    "datafusion.optimizer.prefer_existing_sort": "true",
}


@dataclass(frozen=True, slots=True)
class MergedFile:
    """What a merge has written.

    Attributes:
        written: The data file.
        rows_read: Rows of the slices, before filters and aggregations.
    """

    written: WrittenFile
    rows_read: int


def group_rows(files: Sequence[VerifiedFile], settings: WriteSettings) -> int | None:
    """Return how many rows row groups of a merged file get; None if rows are too unequal.

    Args:
        files: The inputs.
        settings: The layout of the output.
    """
    row_count = sum(file.row_count for file in files)
    mean = sum(file.value_bytes for file in files) / max(1, row_count)
    rows = int(max(1, min(settings.row_group_rows, settings.row_group_bytes / max(1, mean))))
    largest = max((file.row_bytes_max for file in files), default=0)
    return rows if rows * largest <= _UNEVEN * settings.row_group_bytes else None


def merges_natively(
    reading: TableReader, slices: Sequence[FileSlice], settings: WriteSettings, now_ms: int
) -> bool:
    """Return whether DataFusion can write what a merge of these slices gives.

    It depends on nothing else, because two attempts of a job must write the same bytes. Parts of
    files are few, and merged batch by batch.
    """
    return (
        1 <= len(slices) <= FAN_IN_MAX
        and not any(part.regions for part in slices)
        and is_known_codec(settings)
        and is_plannable(reading.processing, reading.arrow_schema, now_ms)
    )


def write_merged_file(
    reading: TableReader,
    slices: Sequence[FileSlice],
    output: Output,
    settings: WriteSettings,
    *,
    rows: int,
    now_ms: int,
    check: Callable[[], None],
) -> MergedFile:
    """Write the rows of slices as one data file; the caller must close `output`.

    Args:
        reading: The table, with the processing to apply.
        slices: What `merges_natively`. All their pages were checked.
        output: Where the file goes.
        settings: The layout.
        rows: Rows of a row group.
        now_ms: The present, in milliseconds since 1970, for filters by age.
        check: Called about ten times a second; what it raises ends the merge.

    Raises:
        DataDamaged: a file is missing or damaged; the message names it.
        StorageFailed: memory or disk is full, or the storage failed.
    """
    scanner = reading.scanner
    with TemporaryDirectory(prefix="sleeper-merge-", dir=scanner.temp_folder) as folder:
        path = Path(folder) / "merged.parquet"
        try:
            count, rows_read = _merged(reading, slices, path, settings, rows, now_ms, check)
        except BaseException as error:
            if not is_read_failure(error):
                raise
            full = _disk_failure(error, scanner.temp_folder)
            raise full or scanner.explained(error, slices) from error
        check()
        if count:
            written = finish_file(path, output, reading.schema, reading.arrow_schema)
        else:
            written = write_data_file(output, (), reading.schema, reading.arrow_schema, settings)
    assert written.row_count == count, f"{count} rows were written, the footer has {written}"
    return MergedFile(written, rows_read)


def _merged(
    reading: TableReader,
    slices: Sequence[FileSlice],
    path: Path,
    settings: WriteSettings,
    rows: int,
    now_ms: int,
    check: Callable[[], None],
) -> tuple[int, int]:
    """Write the temp file; return how many rows it has, and how many were read."""
    schema, arrow_schema, processing = reading.schema, reading.arrow_schema, reading.processing
    session = reading.scanner.new_session(_SETTINGS)
    frames = reading.scanner.frames(slices, session)
    session.context.register_view("rows", united(frames))
    query = merge_query("rows", schema, arrow_schema, processing, now_ms)
    options = copy_options(schema, arrow_schema, settings, group_rows=rows)
    told = ", ".join(f"'{name}' '{value}'" for name, value in options.items())
    place = path.as_uri().replace("'", "''")
    plan = session.context.sql(
        f"COPY ({query}) TO '{place}' STORED AS PARQUET OPTIONS ({told})"
    ).execution_plan()
    _check_plan(plan)
    count = run_plan(session.context, plan, check)
    return count, _rows_read(plan)


def _check_plan(plan: Any) -> None:
    """Raise AssertionError for a plan that would sort, or hold groups of rows in memory."""
    names, shown = node_names(plan), plan.display_indent()
    if {"SortExec", "RepartitionExec", "EmptyExec"} & {*names} or plan.partition_count != 1:
        raise AssertionError(f"a merge must not sort its rows:\n{shown}")
    if shown.count("AggregateExec:") != shown.count("ordering_mode=Sorted"):
        raise AssertionError(f"a merge must aggregate rows as they come:\n{shown}")


def _rows_read(plan: Any) -> int:
    """Return the number of rows that files gave, before filters and aggregations."""
    count, nodes = 0, [plan]
    while nodes:
        node = nodes.pop()
        if node.display().startswith("DataSourceExec"):
            count += node.metrics().output_rows or 0
        nodes += node.children()
    return count


def _disk_failure(error: BaseException, folder: Path | None) -> StorageFailed | None:
    """Return the error for a temp file that cannot be written; None for another failure."""
    found = _OS_ERROR.search(str(error))
    number = int(found[1]) if found else 0
    where = f"the folder for temporary files, {str(folder or gettempdir())!r},"
    if number in (ENOSPC, EDQUOT):
        return StorageFull(
            f"{where} is full: a compaction needs about as much space there as its output takes. "
            "Nothing was written. Free some space, or set another folder by TMPDIR"
        )
    return None
