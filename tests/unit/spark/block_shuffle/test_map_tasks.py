"""Map tasks of a bulk import: Spark may run one again, and compares what its attempts send."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sleeper.engine.arrow_schema import to_arrow
from sleeper.instance.instance import input_store
from sleeper.model.partitions import tree_from_split_points
from sleeper.model.schema import Field, Primitive, Schema
from sleeper.spark.block_shuffle.blocks import read_block
from sleeper.spark.block_shuffle.map_tasks import (
    MapSettings,
    cut_blocks,
    cut_rows,
    set_aside_folder,
)
from sleeper.spark.block_shuffle.packed_buckets import pack_ranges
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
        buckets=pack_ranges(buckets, pa.int64()),
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


def test_a_task_of_the_second_level_sends_all_blocks_whatever_their_order():
    """
    Given blocks of the first of two levels, when a task cuts them in another order, then it sends
    the same blocks, and every row.
    """
    ranges = pack_ranges(plan_even_buckets(LEAVES, 1), pa.int64())
    buckets = pack_ranges(plan_even_buckets(LEAVES, 2), pa.int64())
    settings = MapSettings(
        schema=SCHEMA,
        inputs=input_store(),
        buckets=ranges,
        places=range(2),
        is_outer=True,
        memory_bytes=1,
        new_id=new_id,
    )
    rows = [
        pa.RecordBatch.from_pydict({"id": [n, 20 - n] * 9000, "n": [n, 5] * 9000})
        for n in range(1, 5)
    ]
    sent = [*cut_rows(settings, "rows")(iter(rows))]
    every = pa.Table.from_batches(sent)
    blocks = every.filter(every["block"].is_valid()).to_batches(max_chunksize=1)
    cut = cut_blocks(SCHEMA, buckets, range(3))

    first, again = cut(iter(blocks)), cut(iter(blocks[::-1]))

    cells = [sorted(pa.Table.from_batches(each)["block"].to_pylist()) for each in (first, again)]
    assert cells[0] == cells[1]
    arrow = to_arrow(SCHEMA)
    assert sum(read_block(pa.py_buffer(cell), arrow).num_rows for cell in cells[0]) == sum(
        read_block(pa.py_buffer(cell), arrow).num_rows
        for batch in blocks
        for cell in batch.column("block").to_pylist()
    )
    assert len(cells[0]) > len(blocks)
