"""How the rows of a bulk import are shared out to tasks."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.model.partitions import (
    Partition,
    PartitionTree,
    split_partition,
    tree_from_split_points,
)
from sleeper.model.ranges import whole_region
from sleeper.model.schema import Field, Primitive, Schema
from sleeper.state.plans.bulk_imports import plan_buckets, plan_even_buckets
from tests.unit.model.grown_trees import TWO, grown_trees

ONE = Schema(row_keys=(Field("id", Primitive.LONG),))


@dataclass
class Known:
    """Rows of a leaf whose first keys are these, each standing for so many rows."""

    keys: list[int]
    weight: int = 1

    @property
    def row_count(self) -> int:
        return len(self.keys) * self.weight

    def quantile(self, dimension: int, fraction: float):
        assert dimension == 0
        return sorted(self.keys)[min(int(fraction * len(self.keys)), len(self.keys) - 1)]


def ids():
    numbers = count()
    return lambda: f"p{next(numbers)}"


def tree_of(points, schema=ONE) -> PartitionTree:
    return tree_from_split_points(schema, points, new_id=ids())


def samples_of(tree, keys, weight=1):
    known = {}
    for key in keys:
        known.setdefault(tree.leaf_of((key,)).partition_id, Known([], weight)).keys.append(key)
    return known


def bucket_of(buckets, tree, key) -> int:
    """Where a row goes, by what a task is told."""
    bucket = buckets.range_buckets[bisect_right(buckets.bounds, key[0])]
    return bucket if isinstance(bucket, int) else bucket[tree.leaf_of(key).partition_id]


class TestBuckets:
    """Every row has one task, which knows the row's leaf."""

    def test_gives_each_leaf_of_fitting_size_a_bucket(self):
        """Leaves with as many rows as are wanted get a bucket each, in key order."""
        tree = tree_of([10, 20, 30])

        buckets = plan_buckets(tree.leaves(), samples_of(tree, range(40)), 10)

        assert [len(leaves) for leaves in buckets.leaves] == [1, 1, 1, 1]
        assert buckets.bounds == (10, 20, 30)
        assert buckets.range_buckets == (0, 1, 2, 3)

    def test_puts_small_leaves_together(self):
        """Neighbours share a bucket until it has the rows that are wanted."""
        tree = tree_of([10, 20, 30])

        buckets = plan_buckets(tree.leaves(), samples_of(tree, range(40)), 20)

        assert [len(leaves) for leaves in buckets.leaves] == [2, 2]
        assert buckets.bounds == (20,)

    def test_cuts_a_leaf_that_has_far_more_rows(self):
        """A leaf of half of all rows is cut at its sample's quantiles, and in no other leaf."""
        tree = tree_of([10, 20, 30])
        keys = [*range(10), *range(20, 30), *range(30, 130)]

        buckets = plan_buckets(tree.leaves(), samples_of(tree, keys), 20)

        leaf = tree.leaf_of((30,)).partition_id
        parts = [leaves for leaves in buckets.leaves if leaf in {p.partition_id for p in leaves}]
        assert len(parts) == 5
        assert buckets.bounds[-4:] == (50, 70, 90, 110)

    def test_leaves_a_leaf_whole_whose_rows_share_a_key(self):
        """Where all rows have one first key there is nowhere to cut."""
        tree = tree_of([10])
        samples = samples_of(tree, [5] * 100)

        buckets = plan_buckets(tree.leaves(), samples, 10)

        assert len(buckets) == 2
        assert bucket_of(buckets, tree, (5,)) == bucket_of(buckets, tree, (4,))

    def test_shares_out_leaves_that_differ_in_the_second_key_alone(self):
        """Leaves of one range of the first key are told apart by leaf."""
        root = Partition(partition_id="root", region=whole_region(TWO))
        parent, *children = split_partition(root, "m", dimension=1, new_id=ids())
        tree = PartitionTree.of([parent, *children])
        samples = {child.partition_id: Known([1] * 10) for child in children}

        buckets = plan_buckets(tree.leaves(), samples, 10)

        assert len(buckets) == 2
        assert {bucket_of(buckets, tree, (1, "a")), bucket_of(buckets, tree, (1, "z"))} == {0, 1}

    def test_has_a_place_for_leaves_of_which_nothing_is_known(self):
        """A leaf that the sample missed has a bucket: its rows may come all the same."""
        tree = tree_of([10, 20])

        buckets = plan_buckets(tree.leaves(), {}, 10)

        assert [len(leaves) for leaves in buckets.leaves] == [3]

    @pytest.mark.parametrize(("leaves", "wanted", "buckets"), [(8, 4, 4), (2, 100, 2), (1, 6, 1)])
    def test_shares_leaves_out_evenly_when_nothing_is_known(self, leaves, wanted, buckets):
        """Without a sample there are as many leaves in each bucket."""
        tree = tree_of(range(1, leaves))

        assert len(plan_even_buckets(tree.leaves(), wanted)) == buckets

    @given(grown_trees(), st.data(), st.integers(1, 40))
    def test_brings_every_row_to_a_task_that_has_its_leaf(self, tree, data, wanted):
        """Whatever the tree and the sample, a row's bucket holds the row's leaf."""
        keys = st.tuples(st.integers(-12, 12), st.text("abcd", max_size=3))
        known = {}
        for key in data.draw(st.lists(keys, max_size=60)):
            leaf = tree.leaf_of(key).partition_id
            known.setdefault(leaf, Known([])).keys.append(key[0])

        buckets = plan_buckets(tree.leaves(), known, wanted)

        assert [*buckets.bounds] == sorted({*buckets.bounds})
        assert len(buckets.range_buckets) == len(buckets.bounds) + 1
        assert {p.partition_id for leaves in buckets.leaves for p in leaves} == {
            leaf.partition_id for leaf in tree.leaves()
        }
        for key in data.draw(st.lists(keys, max_size=30)):
            there = buckets.leaves[bucket_of(buckets, tree, key)]
            assert tree.leaf_of(key) in there
