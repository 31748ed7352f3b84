"""Batch read: an input partition for some neighbouring leaves, or for a part of a large one.

A task costs Spark and its Python worker some 40 ms of CPU, whatever it reads: as much as 100,000
rows. So small leaves share a task. A leaf of many rows is cut at keys of its sketches.

No filter is pushed: Spark 4.1 to 4.3 keep the read that was planned with a filter for the loaded
DataFrame as a whole, so a second filter on it, or none, would lack rows. Spark prunes no columns
of a data source in Python either. The options `regions` and `columns` do both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from sleeper.engine.reading.read_leaves import read_leaves
from sleeper.engine.sketches.leaf_keys import LeafFiles, leaf_keys
from sleeper.model.queries import LeafQuery
from sleeper.model.ranges import Region
from sleeper.spark.block_shuffle.shuffle import use_one_thread
from sleeper.spark.data_source.open_table import SparkTable, TableFiles, cached_table_reader
from sleeper.state.plans.exports import leaves_to_cut, packed_leaves

TASK_ROWS = 500_000
"""Neighbouring leaves share a task until they have about so many rows."""
LEAVES_CUT_MAX = 64
"""Of more large leaves none is cut: they are tasks enough, and each costs some requests."""
SKETCHES_OF_A_LEAF = 8

# ---------------------------------------------------------------- requests
#
# The options of the data source, parsed and checked.


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest:
    """Which rows are to be read.

    Attributes:
        regions: Rows inside any of these, each once.
        as_of: The transaction number of the state to read; None for the newest.
    """

    regions: tuple[Region, ...]
    as_of: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRequest:
    """Which rows are to be streamed.

    Attributes:
        regions: Rows inside any of these, each once.
        start: `earliest` for the table as it is and then what is added; `latest` for what is
            added from now on; a number for what is added after that transaction.
        files_max: Files of one micro-batch, where Spark asks (4.2 and later). A transaction is
            never cut, so one that adds more makes a larger batch; None sets no limit.
    """

    regions: tuple[Region, ...]
    start: Literal["earliest", "latest"] | int = "latest"
    files_max: int | None = None


# ---------------------------------------------------------------- a task of several leaves
#
# What one task of Spark reads: groups of leaves, with their files and regions.


@dataclass(frozen=True, slots=True, kw_only=True)
class LeavesTask:
    """Groups of leaves that one task reads. It is complete: a task opens no state.

    Attributes:
        table: The table's files.
        groups: Leaves of `plan_leaf_queries`.
        arrow_schema: The columns to return, as Spark expects them.
        now_ms: The present, in milliseconds since 1970, for filters by age.
    """

    table: TableFiles
    groups: Sequence[Sequence[LeafQuery]]
    arrow_schema: pa.Schema
    now_ms: int


def read_task(task: LeavesTask) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task, merged and processed.

    Raises:
        DataDamaged: a file of the table is missing or wrong.
    """
    use_one_thread()
    reading = cached_table_reader(task.table)
    names = task.arrow_schema.names
    for batch in read_leaves(reading, task.groups, names, now_ms=task.now_ms):
        yield pa.RecordBatch.from_arrays(batch.columns, schema=task.arrow_schema)


class SparkTableReader(DataSourceReader):
    """Plans the read of one state of a table. What goes to workers is the input partitions.

    Args:
        table: The table.
        request: Which rows.
        arrow_schema: The columns, as Spark expects them.

    Raises:
        VersionNotFound: the table has no such transaction, or no longer.
    """

    def __init__(self, table: SparkTable, request: ReadRequest, arrow_schema: pa.Schema) -> None:
        at = request.as_of
        self._state = table.store.refresh() if at is None else table.store.at(at)
        self._regions = request.regions
        self._table = table.table_files
        self._arrow_schema = arrow_schema
        self._now_ms = table.now_ms()

    def partitions(self) -> list[InputPartition]:
        """Return input partitions for all leaves that have files, in key order."""
        packed = packed_leaves(self._state, self._regions, TASK_ROWS, self._cuts())
        return [
            InputPartition(
                LeavesTask(
                    table=self._table,
                    groups=groups,
                    arrow_schema=self._arrow_schema,
                    now_ms=self._now_ms,
                )
            )
            for groups in packed
        ]

    def _cuts(self) -> dict[str, list[Any]]:
        """Return where large leaves are cut, by their ids; of many leaves each is a task as it is.

        A table with a function is read leaf by leaf, since the function gets a leaf's rows at once.
        """
        if self._table.processing.function is not None:
            return {}
        large = [*islice(leaves_to_cut(self._state, self._regions), LEAVES_CUT_MAX + 1)]
        if len(large) > LEAVES_CUT_MAX:
            return {}
        files, schema = self._table.files, self._table.schema
        found = {}
        for each in large:
            references = self._state.references_of(each.leaf.partition_id)
            most = sorted(references, key=lambda one: -one.row_count)[:SKETCHES_OF_A_LEAF]
            keys = leaf_keys(LeafFiles(leaf=each.leaf, references=tuple(most)), files, schema)
            if keys is not None:
                inside = each.leaf.region.ranges[0]
                found[each.leaf.partition_id] = keys.cut_points(0, inside, each.parts)
        return found

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
