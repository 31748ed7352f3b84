"""Map tasks of a bulk import: Spark may run one again, and compares what its attempts send."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sleeper.instance.instance import input_store
from sleeper.model.partitions import tree_from_split_points
from sleeper.model.schema import Field, Primitive, Schema
from sleeper.spark.block_shuffle.map_tasks import MapSettings, cut_rows, set_aside_folder
from sleeper.state.plans.bulk_imports import plan_even_buckets

SCHEMA = Schema(
    row_keys=(Field("id", Primitive.LONG),), sort_keys=(), values=(Field("n", Primitive.LONG),)
)
IDS = count()


def new_id() -> str:
    return f"id{next(IDS)}"


LEAVES = [*tree_from_split_points(SCHEMA, [10], new_id=new_id).leaves()]
ROWS = pa.RecordBatch.from_pydict({"id": [1, None, 12, None], "n": [5, 6, 7, 8]})


def attempt(tasks: Path) -> pa.Table:
    """Run the task once, and return what it gives to Spark."""
    buckets = plan_even_buckets(LEAVES, 2)
    settings = MapSettings(
        schema=SCHEMA,
        inputs=input_store(),
        buckets=buckets,
        places=range(len(buckets) + 1),
        memory_bytes=1 << 20,
        new_id=new_id,
        set_aside=tasks,
    )
    return pa.Table.from_batches(cut_rows(settings, "rows")(iter([ROWS])))


def test_attempts_of_a_task_send_the_same_though_they_set_rows_aside(tmp_path):
    """
    Given rows without a key, when a task runs again, then its blocks and its report are the same
    bytes as before, and the folder has the rows once.
    """
    with set_aside_folder(tmp_path / "aside", new_id) as aside:
        first = attempt(aside.tasks)
        again = attempt(aside.tasks)
        names = [path.name for path in aside.tasks.iterdir()]
        aside.keep(names)

    assert first.equals(again)
    assert len(names) == 1
    assert pq.read_table(tmp_path / "aside")["n"].to_pylist() == [6, 8]
