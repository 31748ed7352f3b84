"""Rows cut into blocks, and read again elsewhere."""

from __future__ import annotations

from bisect import bisect_right
from itertools import count

import pyarrow as pa
import pytest

from sleeper.engine.arrow_schema import to_arrow
from sleeper.model.partitions import (
    Partition,
    PartitionTree,
    split_partition,
    tree_from_split_points,
)
from sleeper.model.ranges import whole_region
from sleeper.model.schema import Field, ListType, MapType, Primitive, Schema
from sleeper.spark.block_shuffle.blocks import BlockCutter, read_block
from sleeper.state.plans.bulk_imports import plan_even_buckets

SCHEMA = Schema(
    row_keys=(Field("id", Primitive.LONG), Field("name", Primitive.STRING)),
    sort_keys=(Field("at", Primitive.LONG),),
    values=(
        Field("tags", ListType(Primitive.STRING), nullable=True),
        Field("counts", MapType(Primitive.STRING, Primitive.LONG)),
    ),
)
ARROW = to_arrow(SCHEMA)


def rows(keys) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "id": number,
                "name": name,
                "at": place,
                "tags": None if place % 3 == 0 else [name] * (place % 3),
                "counts": [(name, place)],
            }
            for place, (number, name) in enumerate(keys)
        ],
        schema=ARROW,
    )


def cut(tree, buckets, tables, memory_bytes=1 << 20):
    """Return what each bucket gets: one table for each of its blocks."""
    cutter = BlockCutter(SCHEMA, ARROW, buckets, memory_bytes=memory_bytes)
    arrived: dict[int, list[pa.Table]] = {}
    for bucket, block in cutter.blocks(tables):
        batch = read_block(block, ARROW)
        arrived.setdefault(bucket, []).append(pa.Table.from_batches([batch]))
    return arrived


def key_order(table: pa.Table) -> list[tuple]:
    return list(zip(*(table.column(name).to_pylist() for name in SCHEMA.key_names), strict=True))


@pytest.mark.parametrize("memory_bytes", [1, 1 << 20])
def test_every_row_comes_to_its_bucket_once_and_blocks_are_in_key_order(memory_bytes):
    """Cut in one piece or in many, a bucket gets its rows, with lists, maps and nulls as they were."""
    numbers = count()
    tree = tree_from_split_points(SCHEMA, [3, 6, 9], new_id=lambda: f"p{next(numbers)}")
    buckets = plan_even_buckets(tree.leaves(), 2)
    given = rows([(n * 7 % 12, "x" * (n % 4)) for n in range(50)])

    arrived = cut(tree, buckets, [given.slice(0, 20), given.slice(20)], memory_bytes)

    together = pa.concat_tables([table for tables in arrived.values() for table in tables])
    assert sorted(together.to_pylist(), key=lambda row: row["at"]) == given.to_pylist()
    for bucket, tables in arrived.items():
        for table in tables:
            assert key_order(table) == sorted(key_order(table))
            assert {bisect_right(buckets.bounds, number) for number in table["id"].to_pylist()} == {
                bucket
            }


def test_leaves_that_share_the_first_key_are_told_apart_by_the_second():
    """Where a tree was split on its second key, a row goes to the bucket of its own leaf."""
    numbers = count()
    root = Partition(partition_id="root", region=whole_region(SCHEMA))
    parent, *children = split_partition(root, "m", dimension=1, new_id=lambda: f"p{next(numbers)}")
    tree = PartitionTree.of([parent, *children])
    buckets = plan_even_buckets(tree.leaves(), 2)

    arrived = cut(tree, buckets, [rows([(1, "a"), (1, "z"), (1, "b")])])

    names = {bucket: tables[0]["name"].to_pylist() for bucket, tables in arrived.items()}
    assert names == {0: ["a", "b"], 1: ["z"]}
