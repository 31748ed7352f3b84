"""Batch write: every task writes files as ingest does, the driver commits them at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from sleeper.engine.arrow_schema import check_columns, to_arrow
from sleeper.engine.inputs.sources import open_source
from sleeper.engine.inputs.validated_input import ValidatedInput
from sleeper.engine.sorting.sort import SortSettings
from sleeper.engine.writing.discard import discard_files
from sleeper.engine.writing.leaf_files import LeafFiles, sorted_groups
from sleeper.engine.writing.write_settings import WriteSettings
from sleeper.errors import BadRequest, NullKeys
from sleeper.model.files import FileReference
from sleeper.model.partitions import LeafGroup, leaf_groups
from sleeper.ports.ids import NewId
from sleeper.spark.block_shuffle.shuffle import use_one_thread
from sleeper.spark.data_source.open_table import SparkTable, TableFiles
from sleeper.state.new_files import SweepGuard, add_files
from sleeper.state.table_state import CommittedJob

# ---------------------------------------------------------------- writing
#
# Writes the rows of a task to data files, as ingest does, and commits the files of all tasks.

_QUERY_ID = "sql.streaming.queryId"
_NAME = "the DataFrame"


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePlan:
    """What a task needs to write rows. Picklable.

    Attributes:
        table: The table's files.
        groups: Its leaves.
        root_id: Its root partition.
        file_writing: As the table's property says.
        sort: What the task's sort may use.
        write: How data files are written.
        now_ms: The present, in milliseconds since 1970, for filters by age.
        started: The same by the storage's clock, for the check of files before they are committed.
        new_id: Fresh random ids.
        upsert: Whether rows of the same row keys are replaced.
    """

    table: TableFiles
    groups: tuple[LeafGroup, ...]
    root_id: str
    file_writing: str
    sort: SortSettings
    write: WriteSettings
    now_ms: int
    started: datetime
    new_id: NewId
    upsert: bool


@dataclass(frozen=True)
class TaskOutput(WriterCommitMessage):
    """What one task wrote.

    Attributes:
        references: Its files.
        rows_read: Rows that came in.
        rows_written: Rows in the files.
        query_id: The streaming query that it belongs to, if any.
    """

    references: tuple[FileReference, ...]
    rows_read: int
    rows_written: int
    query_id: str | None


def plan_write(table: SparkTable, given: pa.Schema, *, overwrite: bool, upsert: bool) -> WritePlan:
    """Return the plan of a write, after a check that the columns fit.

    Args:
        table: The table.
        given: The DataFrame's schema.
        overwrite: Whether all rows were to be replaced, which a write cannot do.
        upsert: Whether rows of the same row keys are to be replaced.

    Raises:
        BadRequest: all rows were to be replaced, or those of a table that aggregates.
        InputSchemaMismatch: the columns do not fit the table.
    """
    if overwrite:
        raise BadRequest(
            "a table is added to, never overwritten: write with mode('append'), or with "
            "outputMode('append') for a stream; with option('upsert', 'true') rows of the same row "
            "keys are replaced. Table.reinitialise removes all rows first."
        )
    if upsert:
        table.check_upsert()
    arrow_schema = to_arrow(table.schema)
    check_columns(given, arrow_schema, ignore_extra_columns=False, origin=_NAME)
    tree = table.store.refresh().tree
    return WritePlan(
        table=table.table_files,
        groups=tuple(leaf_groups(tree.leaves())),
        root_id=tree.root_id,
        file_writing=table.file_writing,
        sort=SortSettings(
            memory_bytes=table.memory_bytes, temp_folder=table.table_files.temp_folder
        ),
        write=table.write,
        now_ms=table.now_ms(),
        started=table.store.time(),
        new_id=table.new_id,
        upsert=upsert,
    )


def write_batches(plan: WritePlan, batches: Iterator[pa.RecordBatch]) -> TaskOutput:
    """Sort and write the rows of one task.

    Raises:
        InputRefused: a key is null, or a value does not fit. Files already written are deleted.
    """
    first = next(batches, None)
    if first is None:
        return TaskOutput((), 0, 0, query_id())
    return write_rows(
        plan, pa.RecordBatchReader.from_batches(first.schema, chain([first], batches))
    )


def write_rows(plan: WritePlan, rows: object) -> TaskOutput:
    """Sort and write the rows of one task, in any form that ingest takes.

    Raises:
        InputRefused: as for `write_batches`.
    """
    use_one_thread()
    schema = plan.table.schema
    arrow_schema = to_arrow(schema)
    source = open_source(rows, arrow_schema)
    source.check(ignore_extra_columns=False)
    intake = ValidatedInput(source, schema, arrow_schema)
    leaf_files = LeafFiles(plan.table.files, schema, arrow_schema, plan.write, plan.new_id)
    try:
        groups = sorted_groups(
            intake.batches(),
            plan.groups,
            schema,
            arrow_schema,
            plan.table.processing,
            plan.sort,
            now_ms=plan.now_ms,
        )
        with closing(groups):
            leaf_files.write(plan.file_writing, plan.root_id, groups)
    except BaseException as error:
        leaf_files.discard()
        if isinstance(error, NullKeys):
            raise _refusal(error, intake.rows_read) from None
        raise
    return TaskOutput(
        tuple(leaf_files.references), intake.rows_read, leaf_files.rows_written, query_id()
    )


def _refusal(refusal: NullKeys, rows_read: int) -> NullKeys:
    """Return the error for null keys, worded for a user who writes a DataFrame."""
    counts = refusal.null_counts
    each = ", ".join(f"{count:,} without {name!r}" for name, count in counts.items() if count)
    return NullKeys(
        f"{_NAME} has rows with a null in a key field: {each}, among the {rows_read:,} rows of one "
        "task. Nothing was added to the table. Fill the keys in, or filter such rows out.",
        counts,
    )


def commit_written(
    table: SparkTable, plan: WritePlan, written: Sequence[TaskOutput], job_id: str | None
) -> None:
    """Commit the files of all tasks in one transaction; nothing, if the job was committed before.

    Raises:
        InputRefused: two rows of an upsert have the same key; the table is as it was.
        CommitRefused, CommitContended, StorageFailed: the table is as it was; the files are gone.
        CommitUnknown: storage gave no answer; write again with the job id that the error names.
    """
    references = [reference for each in written for reference in each.references]
    if not references and job_id is None:
        return
    now = table.store.time()
    job = CommittedJob(
        job_id=job_id or table.new_id(),
        keep_until=now + table.job_id_kept,
        rows_read=sum(each.rows_read for each in written),
        rows_written=sum(each.rows_written for each in written),
    )
    files = table.table_files.files
    guard = SweepGuard(files=files, started=plan.started, orphan_age=table.orphan_age)
    add_files(
        references,
        job,
        store=table.store,
        guard=guard,
        now=now,
        discard=lambda: discard_files((each.filename for each in references), files),
        commit=table.commit_upsert if plan.upsert else None,
    )
    table.undo_commit_if_deleted()


def abort_written(table: TableFiles, messages: Sequence[Any]) -> None:
    """Delete what was written when a task failed.

    Where every task succeeded, a commit was tried: it has deleted the files if that is safe, and
    if it is not known whether they are in the table, nobody may.
    """
    if all(isinstance(message, TaskOutput) for message in messages):
        return
    written = [message for message in messages if isinstance(message, TaskOutput)]
    names = [reference.filename for each in written for reference in each.references]
    discard_files(names, table.files)


def query_id() -> str | None:
    """Return the id of the streaming query that this task belongs to, if any."""
    context = TaskContext.get()
    found = None if context is None else context.getLocalProperty(_QUERY_ID)
    return found or None


class TableWriter(DataSourceArrowWriter):
    """Writes a DataFrame into a table.

    Args:
        plan: What tasks need.
        open_table: Opens the table once more, in the process that commits. Picklable.
        job_id: Names the work, so that it is done once; where it is None, one is made.
    """

    def __init__(
        self, plan: WritePlan, open_table: Callable[[], SparkTable], job_id: str | None
    ) -> None:
        self._plan = plan
        self._open_table = open_table
        self._job_id = job_id

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskOutput:
        """Sort and write the rows of one task."""
        return write_batches(self._plan, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Add the files of all tasks to the table, in one transaction."""
        written = [message for message in messages if isinstance(message, TaskOutput)]
        commit_written(self._open_table(), self._plan, written, self._job_id)

    def abort(self, messages: Sequence[Any]) -> None:
        """Delete the files of the tasks that succeeded, when another failed."""
        abort_written(self._plan.table, messages)
