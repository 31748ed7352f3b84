"""Batch read: one input partition for each group of leaves; filters are pushed on demand.

Spark 4.1 to 4.3 keep what a filter left to be read for the whole DataFrame that was loaded:
used once more with another filter, or with none, it lacks rows. So filters are pushed only
where the user has asked for it, and loads a DataFrame for each filter.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from sleeper.planning.leaf_queries import plan_leaf_queries
from sleeper.spark.data_source.filters import narrowed
from sleeper.spark.data_source.leaves_task import LeavesTask, read_task
from sleeper.spark.data_source.open_table import OpenTable
from sleeper.spark.data_source.requests import ReadRequest

if TYPE_CHECKING:  # Spark 4.0 has none
    from pyspark.sql.datasource import Filter

_PUSHING_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


def open_reader(table: OpenTable, request: ReadRequest, arrow_schema: pa.Schema) -> TableReader:
    """Return the reader that suits the process that runs.

    Spark refuses a reader that can push filters where its setting
    `spark.sql.python.filterPushdown.enabled` is off, even if there are none. With the setting
    on, it asks about filters in a worker of their own: only there a reader can push.

    Args:
        table: The table.
        request: Which rows.
        arrow_schema: The columns, as Spark expects them.

    Raises:
        VersionNotFound: the table has no such transaction, or no longer.
    """
    pushes = request.push_filters and _is_asked_for_filters()
    return (PushingTableReader if pushes else TableReader)(table, request, arrow_schema)


class TableReader(DataSourceReader):
    """Plans the read of one state of a table. What goes to workers is the input partitions."""

    def __init__(self, table: OpenTable, request: ReadRequest, arrow_schema: pa.Schema) -> None:
        at = request.as_of
        self._state = table.store.refresh() if at is None else table.store.at(at)
        self._regions: Sequence[Any] = request.regions
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


class PushingTableReader(TableReader):
    """A reader for Spark 4.1 and later with the setting on."""

    def __init__(self, table: OpenTable, request: ReadRequest, arrow_schema: pa.Schema) -> None:
        super().__init__(table, request, arrow_schema)
        self._schema = table.schema

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802 - Spark's name
        """Read only what can pass, and return all filters, for Spark to check every row."""
        self._regions = narrowed(self._regions, filters, self._schema)
        return filters


class PartitionReader(DataSourceReader):
    """What is left of a reader in a worker."""

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of one input partition."""
        return read_partition(partition)


def read_partition(partition: InputPartition) -> Iterator[Any]:
    """Yield the rows of one input partition. Where there is none, Spark makes an empty one."""
    task = partition.value
    return read_task(task) if isinstance(task, LeavesTask) else iter(())


def _is_asked_for_filters() -> bool:
    """Whether this is the process in which Spark pushes filters."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _PUSHING_WORKER in sys.modules or getattr(main, "name", None) == _PUSHING_WORKER
