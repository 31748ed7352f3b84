"""Stream write: each micro-batch is one job of a table, so it is added exactly once.

A micro-batch that Spark repeats after a crash has the same query and number, so the same job
id. The table knows the job, and nothing is added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyspark.sql.datasource as spark_datasource
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage

from sleeper.errors import BadRequest
from sleeper.model.column_types import traits_of
from sleeper.model.schema import FieldType, plain_kinds
from sleeper.spark.data_source.open_table import SparkTable
from sleeper.spark.data_source.writer import (
    TaskOutput,
    WritePlan,
    abort_written,
    commit_written,
    write_batches,
    write_rows,
)


class TableStreamWriter(DataSourceStreamWriter):
    """Writes a stream into a table, on Spark 4.0, which gives tasks rows one by one.

    Args:
        plan: What tasks need.
        open_table: Opens the table once more, in the process that commits. Picklable.
        job_id: Names the stream, in place of the id that its checkpoint has.
    """

    def __init__(
        self, plan: WritePlan, open_table: Callable[[], SparkTable], job_id: str | None
    ) -> None:
        self._plan = plan
        self._open_table = open_table
        self._job_id = job_id

    def write(self, iterator: Iterator[Any]) -> TaskOutput:
        """Sort and write the rows of one task."""
        schema = self._plan.table.schema
        instants = [field.name for field in schema.fields if _holds_instants(field.type)]
        return write_rows(self._plan, (_as_dict(row, instants) for row in iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Add the files of all tasks to the table, if this micro-batch was not added before."""
        written = [message for message in messages if isinstance(message, TaskOutput)]
        if not any(each.rows_read for each in written):
            return
        stream_id = self._job_id or next((each.query_id for each in written), None)
        if stream_id is None:
            raise BadRequest(
                "this Spark gives tasks no id of their streaming query, so a repeated micro-batch "
                "could not be recognised: name the stream by the option job_id"
            )
        commit_written(self._open_table(), self._plan, written, f"{stream_id}-{batchId}")

    def abort(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Delete the files of the tasks that succeeded, when another failed."""
        abort_written(self._plan.table, messages)


def _holds_instants(kind: FieldType) -> bool:
    found = map(traits_of, plain_kinds(kind))
    return any(traits is not None and traits.is_instant for traits in found)


def _as_dict(row: Any, instants: Sequence[str]) -> dict[str, Any]:
    """Return a row of Spark as a dict. Spark gives instants in the worker's local time zone."""
    values: dict[str, Any] = row.asDict(recursive=True)
    for name in instants:
        if name in values:
            values[name] = _in_utc(values[name])
    return values


def _in_utc(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    if isinstance(value, list):
        return [_in_utc(each) for each in value]
    if isinstance(value, dict):
        return {_in_utc(key): _in_utc(each) for key, each in value.items()}
    return value


_ArrowWriter: Any = getattr(spark_datasource, "DataSourceStreamArrowWriter", None)


class ArrowTableStreamWriter(TableStreamWriter, _ArrowWriter or object):  # type: ignore[misc]
    """Writes a stream into a table, batch by batch as Arrow: on Spark 4.1 and later."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskOutput:
        """Sort and write the rows of one task."""
        return write_batches(self._plan, iterator)


def open_stream_writer(
    plan: WritePlan, open_table: Callable[[], SparkTable], job_id: str | None
) -> TableStreamWriter:
    """Return the stream writer that suits this Spark."""
    kind = TableStreamWriter if _ArrowWriter is None else ArrowTableStreamWriter
    return kind(plan, open_table, job_id)
