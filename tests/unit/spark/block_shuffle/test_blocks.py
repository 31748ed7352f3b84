"""Rows cut into blocks, and read again elsewhere."""

from __future__ import annotations

import pickle
from bisect import bisect_right
from dataclasses import replace
from itertools import chain, count

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
from sleeper.spark.block_shuffle.packed_buckets import BucketLeaves, BucketParts, pack_ranges
from sleeper.state.plans.bulk_imports import joined_buckets, plan_even_buckets

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


def packed(buckets):
    return pack_ranges(buckets, ARROW.field("id").type)


def cut(tree, buckets, tables, memory_bytes=1 << 20):
    """Return what each bucket gets: one table for each of its blocks."""
    cutter = BlockCutter(SCHEMA, ARROW, packed(buckets), memory_bytes=memory_bytes)
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


@pytest.mark.parametrize("each", [1, 2, 3, 7])
def test_two_levels_bring_rows_to_the_same_buckets_as_one(each):
    """
    Given blocks that were cut for several buckets together, when each is cut again, then every
    bucket gets the rows that it gets from one cut, in key order, whatever order blocks arrive in.
    """
    numbers = count()
    points = tree_from_split_points(SCHEMA, [3, 6, 9], new_id=lambda: f"p{next(numbers)}")
    (first, *_), new_id = points.leaves(), lambda: f"s{next(numbers)}"
    parent, *children = split_partition(first, "xx", dimension=1, new_id=new_id)
    changed = {each.partition_id: each for each in (parent, *children)}
    tree = PartitionTree.of({**points.partitions, **changed}.values())
    buckets = plan_even_buckets(tree.leaves(), 5)
    given = [rows([(n * 7 % 12, "x" * (n % 4)) for n in range(200)])]
    outer = BlockCutter(SCHEMA, ARROW, packed(joined_buckets(buckets, each)), memory_bytes=2000)
    inner = BlockCutter(SCHEMA, ARROW, packed(buckets), memory_bytes=0)
    blocks = [*outer.blocks(given)]

    again = [*inner.recut(block for _, block in reversed(blocks))]

    by_one = {
        bucket: sum(t.num_rows for t in tables)
        for bucket, tables in cut(tree, buckets, given).items()
    }
    by_two: dict[int, int] = {}
    for bucket, block in again:
        table = pa.Table.from_batches([read_block(block, ARROW)])
        assert key_order(table) == sorted(key_order(table))
        by_two[bucket] = by_two.get(bucket, 0) + table.num_rows
    assert by_two == by_one
    assert {bucket for bucket, _ in blocks} == {bucket // each for bucket in by_one}


def halves(tables, parts, number=0):
    """Return the numbers of the parts, and the keys, of what a task of six leaves sends."""
    numbers = count()
    points = [10, 20, 30, 40, 50]
    tree = tree_from_split_points(SCHEMA, points, new_id=lambda: f"p{next(numbers)}")
    buckets = plan_even_buckets(tree.leaves(), 6)
    cutter = BlockCutter(SCHEMA, ARROW, packed(buckets), memory_bytes=1, parts=parts, number=number)
    sent: dict[int, list[int]] = {}
    for place, block in cutter.blocks(tables):
        keys = read_block(block, ARROW)["id"].to_pylist()
        assert keys == sorted(keys)
        sent.setdefault(place, []).extend(keys)
    return sent


PARTS = BucketParts(count=4, buckets=6, tasks=6, task_bytes=1 << 30)


class TestParts:
    """Buckets that turn out to have far more rows than others, where keys were not sampled."""

    def test_are_ranges_of_keys_where_a_piece_has_rows_of_most_buckets(self):
        """
        Given a piece with two thirds of its rows in one of six leaves, then these go to all four
        parts of its bucket, in key order and as many to each, and others to the first of theirs.
        """
        piece = rows([(20 + n % 10, "a") for n in range(40)] + [(n * 3, "b") for n in range(20)])

        sent = halves([piece], PARTS)

        hot = {place: keys for place, keys in sent.items() if 8 <= place < 12}
        assert [*hot] == [8, 9, 10, 11]
        assert {len(keys) for keys in hot.values()} <= {10, 11, 12}
        together = [*chain.from_iterable(hot[place] for place in sorted(hot))]
        assert together == sorted(together)
        assert {place for place in sent if place not in hot} == {0, 4, 12, 16, 20}

    def test_are_not_used_for_sorted_rows(self):
        """Given rows in key order, one leaf a piece, then a bucket goes to one part of the task."""
        pieces = [rows([(n + k, "a") for k in range(10)]) for n in range(0, 60, 10)]

        assert {*halves(pieces, PARTS)} == {0, 4, 8, 12, 16, 20}
        assert {*halves(pieces, PARTS, number=3)} == {3, 7, 11, 15, 19, 23}

    def test_are_used_from_the_second_piece_on_where_keys_come_again(self):
        """Given pieces of one leaf alone, whose keys are around the last ones, then it is divided."""
        piece = rows([(20 + n % 10, "a") for n in range(40)])

        assert {*halves([piece], PARTS)} == {8}
        assert {*halves([piece, piece], PARTS)} == {8, 9, 10, 11}

    def test_are_used_once_a_task_has_sent_more_than_a_task_should_write(self):
        """Given sorted pieces of one leaf, and small tasks, then the later pieces are divided."""
        pieces = [rows([(n, f"{k:02}") for k in range(40)]) for n in range(20, 30)]

        sent = halves(pieces, replace(PARTS, task_bytes=2_000))

        assert {*sent} == {8, 9, 10, 11}
        assert sorted(chain.from_iterable(sent.values())) == sorted([*range(20, 30)] * 40)


def test_a_task_unpacks_the_leaves_of_its_own_bucket():
    """Leaves are packed bucket by bucket, in tree order."""
    numbers = count()
    tree = tree_from_split_points(SCHEMA, [3, 6, 9, 12], new_id=lambda: f"p{next(numbers)}")
    buckets = plan_even_buckets(tree.leaves(), 2)

    leaves = pickle.loads(pickle.dumps(BucketLeaves.of(buckets)))

    assert [tuple(leaves.of_bucket(number)) for number in range(2)] == list(buckets.leaves)
