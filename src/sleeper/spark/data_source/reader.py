"""Batch read: one input partition for each group of leaves.

No filter is pushed: Spark 4.1 to 4.3 keep the read that was planned with a filter for the loaded
DataFrame as a whole, so a second filter on it, or none, would lack rows. Spark prunes no columns
of a data source in Python either. The options `regions` and `columns` do both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from sleeper.spark.data_source.leaves_task import LeavesTask, read_task
from sleeper.spark.data_source.open_table import OpenTable
from sleeper.spark.data_source.requests import ReadRequest
from sleeper.state.plans.leaf_queries import plan_leaf_queries


class TableReader(DataSourceReader):
    """Plans the read of one state of a table. What goes to workers is the input partitions.

    Args:
        table: The table.
        request: Which rows.
        arrow_schema: The columns, as Spark expects them.

    Raises:
        VersionNotFound: the table has no such transaction, or no longer.
    """

    def __init__(self, table: OpenTable, request: ReadRequest, arrow_schema: pa.Schema) -> None:
        at = request.as_of
        self._state = table.store.refresh() if at is None else table.store.at(at)
        self._regions = request.regions
        self._table = table.table_files
        self._arrow_schema = arrow_schema
        self._now_ms = table.now_ms()

    def partitions(self) -> list[InputPartition]:
        """Return one input partition for each group of leaves that has files."""
        return [
            InputPartition(
                LeavesTask(
                    table=self._table,
                    groups=[group],
                    arrow_schema=self._arrow_schema,
                    now_ms=self._now_ms,
                )
            )
            for group in plan_leaf_queries(self._state, self._regions)
        ]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of one input partition."""
        return read_partition(partition)

    def __reduce__(self) -> tuple[Any, ...]:
        # Every task gets a copy of its reader. It needs none of the state.
        return PartitionReader, ()


class PartitionReader(DataSourceReader):
    """The reader in a worker, which needs no table and no state."""

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of one input partition."""
        return read_partition(partition)


def read_partition(partition: InputPartition) -> Iterator[Any]:
    """Yield the rows of one input partition. Where there is none, Spark makes an empty one."""
    task = partition.value
    return read_task(task) if isinstance(task, LeavesTask) else iter(())
