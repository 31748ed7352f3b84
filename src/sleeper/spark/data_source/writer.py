"""Batch write: every task writes files as ingest does, the driver commits them at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from sleeper.spark.data_source.open_table import OpenTable
from sleeper.spark.data_source.writing import (
    WritePlan,
    Written,
    abort_written,
    commit_written,
    write_batches,
)


class TableWriter(DataSourceArrowWriter):
    """Writes a DataFrame into a table.

    Args:
        plan: What tasks need.
        open_table: Opens the table once more, in the process that commits. Picklable.
        job_id: Names the work, so that it is done once; where it is None or blank, one is made.
    """

    def __init__(
        self, plan: WritePlan, open_table: Callable[[], OpenTable], job_id: str | None
    ) -> None:
        self._plan = plan
        self._open_table = open_table
        self._job_id = job_id

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Sort and write the rows of one task."""
        return write_batches(self._plan, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Add the files of all tasks to the table, in one transaction."""
        written = [message for message in messages if isinstance(message, Written)]
        commit_written(self._open_table(), self._plan, written, self._job_id)

    def abort(self, messages: Sequence[Any]) -> None:
        """Delete the files of the tasks that succeeded, when another failed."""
        abort_written(self._plan.table, messages)
