"""What one task of Spark reads: groups of leaves, with their files and regions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from sleeper.engine.read_leaves import read_leaves
from sleeper.language.value_classes import dataclass
from sleeper.model.queries import LeafQuery
from sleeper.spark.block_shuffle.workers import use_one_thread
from sleeper.spark.data_source.open_table import TableFiles, cached_table_reader


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
