"""The partition tree: built from split points, split, looked up, checked."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.errors import PartitionNotFound, SplitInvalid, SplitPointsInvalid
from sleeper.model.partitions import (
    Partition,
    PartitionTree,
    check_split,
    leaf_groups,
    split_partition,
    split_points_of,
    tree_from_split_points,
)
from sleeper.model.ranges import Range, Region, region_of, whole_region
from sleeper.model.schema import Field, Primitive, Schema
from tests.unit.model.grown_trees import TWO, grown_trees, split_tree

ONE = Schema(row_keys=[Field("n", Primitive.LONG)])
LEAST = -(2**63)

points_lists = st.sets(st.integers(-50, 50), max_size=20).map(sorted)
keys = st.integers(-60, 60)


def ids():
    numbers = count(1)
    return lambda: f"p{next(numbers)}"


def tree_of(*points, schema=ONE) -> PartitionTree:
    return tree_from_split_points(schema, points, new_id=ids())


def ranges_of(tree: PartitionTree) -> list[tuple[int, int | None]]:
    return [(leaf.region.ranges[0].min, leaf.region.ranges[0].max) for leaf in tree.leaves()]


class TestTreeFromSplitPoints:
    """How a new table gets its partitions."""

    def test_no_points_make_one_leaf_called_root(self):
        """It covers every key (PRT-6)."""
        tree = tree_of()

        assert [(p.partition_id, p.is_leaf) for p in tree.leaves()] == [("root", True)]
        assert tree.root.region == whole_region(ONE)

    @given(points_lists)
    def test_n_points_make_n_plus_1_leaves(self, points):
        """And 2 N + 1 partitions in all (PRT-7)."""
        tree = tree_of(*points)

        assert len(list(tree.leaves())) == len(points) + 1
        assert len(tree) == 2 * len(points) + 1

    @given(points_lists)
    def test_the_points_can_be_read_off_the_tree(self, points):
        """Distinct lower bounds on the first row key, but for the least (TBL-11)."""
        assert split_points_of(tree_of(*points)) == points

    def test_leaves_meet_at_the_points(self):
        """In key order, the lower child first (PRT-9)."""
        assert ranges_of(tree_of(10, 20)) == [(LEAST, 10), (10, 20), (20, None)]

    def test_neighbours_are_paired_and_an_odd_one_is_carried_up(self):
        """Three leaves: the first two have a parent, which pairs with the third (PRT-7)."""
        tree = tree_of(10, 20)

        lower, upper = (tree.partition(child) for child in tree.root.child_ids)

        assert (lower.is_leaf, upper.is_leaf) == (False, True)
        assert upper.region.ranges[0] == Range(20, None)
        assert [p.partition_id for p in tree.ancestors(lower.child_ids[0])] == [
            lower.partition_id,
            tree.root_id,
        ]

    @given(points_lists)
    def test_is_split_on_the_first_row_key_alone(self, points):
        """The other dimensions stay whole (PRT-7)."""
        tree = tree_of(*points, schema=TWO)

        assert {leaf.region.ranges[1] for leaf in tree.leaves()} == {Range("", None)}
        assert {p.dimension for p in tree.partitions.values() if not p.is_leaf} <= {0}

    @given(points_lists)
    def test_is_balanced(self, points):
        """No leaf is deeper than the leaves' number halved again and again."""
        tree = tree_of(*points)

        depths = [len(list(tree.ancestors(leaf.partition_id))) for leaf in tree.leaves()]

        assert 2 ** max(depths) < 2 * len(depths) or len(depths) == 1

    @pytest.mark.parametrize(
        ("points", "message"),
        [
            ([1, 1], "Invalid split point: 1 - duplicate found: give each once"),
            ([2, 1], "Invalid split point: 2 should be less than 1: give them sorted"),
            (["7"], "Invalid split point: '7' should be of type LongType; give 7"),
            (["a"], "Invalid split point: 'a' should be of type LongType"),
            ([None], "Invalid split point: None should be of type LongType"),
            ([True], "Invalid split point: True should be of type LongType"),
        ],
    )
    def test_wrong_points_are_refused(self, points, message):
        """With upstream's words (TBL-9), and what to give instead."""
        with pytest.raises(SplitPointsInvalid) as refused:
            tree_of(*points)

        assert str(refused.value) == message

    def test_the_least_value_is_no_split_point(self):
        """The leaf below it would be empty."""
        with pytest.raises(SplitPointsInvalid, match="least value of LongType"):
            tree_of(LEAST, 0)


class TestLookUp:
    """Which leaf a key belongs to, and which leaves a query must read."""

    @given(grown_trees(), keys, st.text("abcd", max_size=3))
    def test_every_key_is_in_exactly_one_leaf(self, tree, n, s):
        """The one that the tree finds (PRT-8)."""
        holding = [leaf for leaf in tree.leaves() if (n, s) in leaf.region]

        assert holding == [tree.leaf_of((n, s))]

    @given(grown_trees(), st.lists(st.tuples(keys, keys), min_size=1, max_size=3))
    def test_leaves_that_overlap_regions_come_once_and_in_order(self, tree, sides):
        """However many regions a leaf overlaps; each comes with their parts inside it."""
        regions = [region_of(TWO, {"n": Range(*sorted(side))}) for side in sides]

        found = list(tree.leaves_overlapping(regions))

        assert found == [
            (leaf, tuple(inside))
            for leaf in tree.leaves()
            if (inside := [b for r in dict.fromkeys(regions) if (b := r.intersection(leaf.region))])
        ]

    def test_many_regions_are_not_compared_with_every_leaf(self, monkeypatch):
        """Each goes down the tree to the leaves that it is in."""
        # given a tree of 256 leaves, and a region in each
        tree = tree_of(*range(1, 256))
        regions = [Region((Range(n, n + 1),)) for n in range(256)]
        compared = []
        intersection = Region.intersection
        monkeypatch.setattr(
            Region, "intersection", lambda a, b: compared.append(a) or intersection(a, b)
        )

        # when the leaves of all are asked for
        found = list(tree.leaves_overlapping(regions))

        # then a region was compared with two partitions of each level at most
        assert len(found) == 256
        assert len(compared) <= 256 * 2 * 9

    def test_ancestors_come_nearest_first(self):
        """The root last; it has none itself (PRT-9)."""
        tree = tree_of(10, 20, 30)
        leaf = tree.leaf_of((5,))

        ancestors = [p.partition_id for p in tree.ancestors(leaf.partition_id)]

        assert ancestors == [leaf.parent_id, tree.root_id]
        assert list(tree.ancestors(tree.root_id)) == []
        assert tree.ids_upwards(leaf.partition_id) == [leaf.partition_id, *ancestors]

    def test_an_unknown_partition_is_told(self):
        """By its id (STS-10)."""
        with pytest.raises(PartitionNotFound, match="Partition not found: nowhere"):
            tree_of().partition("nowhere")

    def test_knows_its_partitions(self):
        """By id."""
        tree = tree_of(10)

        assert tree.root_id in tree
        assert "nowhere" not in tree


class TestSplit:
    """A leaf becomes a parent of two."""

    def test_divides_one_dimension(self):
        """`[min, point)` and `[point, max)`; the other dimensions are copied (SPL-5)."""
        leaf = Partition(partition_id="root", region=whole_region(TWO))

        parent, lower, upper = split_partition(leaf, "m", dimension=1, new_id=ids())

        assert parent == replace(leaf, child_ids=("p1", "p2"), dimension=1)
        assert lower.region == leaf.region.with_range(1, Range("", "m"))
        assert upper.region == leaf.region.with_range(1, Range("m", None))
        assert (lower.parent_id, upper.parent_id) == ("root", "root")

    @pytest.mark.parametrize("at", [LEAST, 10, 11])
    def test_a_point_outside_the_leaf_is_refused(self, at):
        """So is the leaf's own minimum: the lower child would be empty (PRT-11)."""
        leaf = Partition(partition_id="left", region=Region((Range(LEAST, 10),)))

        with pytest.raises(SplitInvalid, match=r"'left'.*must lie inside"):
            split_partition(leaf, at, new_id=ids())

    @given(grown_trees())
    def test_splits_upon_splits_stay_a_tree(self, tree):
        """A tree checked from scratch is the tree that grew (PRT-10)."""
        assert PartitionTree.of(tree.partitions.values()) == tree

    def test_the_old_tree_stays_as_it_was(self):
        """A tree is a value: who holds the older one still reads it (PRT-13)."""
        before = tree_of(10)
        leaf = before.leaf_of((5,))
        names = iter(("l", "r"))

        parent, *children = split_partition(leaf, 3, new_id=lambda: next(names))
        after = split_tree(before, parent, children)

        assert before.leaf_of((5,)) == leaf
        assert after.leaf_of((5,)).partition_id == "r"
        assert leaf.partition_id in after


class TestChecks:
    """What makes a tree, and a split, valid (PRT-10, PRT-11)."""

    def valid(self) -> tuple[Partition, Partition, Partition]:
        leaf = Partition(partition_id="root", region=whole_region(TWO))
        return split_partition(leaf, 0, new_id=ids())

    def test_a_tree_has_exactly_one_root(self):
        """Neither none nor two."""
        parent, lower, upper = self.valid()

        with pytest.raises(SplitInvalid, match="exactly one root, not 0"):
            PartitionTree.of([])
        with pytest.raises(SplitInvalid, match="exactly one root, not 2"):
            PartitionTree.of([parent, lower, replace(upper, parent_id=None)])

    def test_a_tree_has_all_its_children(self):
        """A missing one is named."""
        parent, lower, _ = self.valid()

        with pytest.raises(SplitInvalid, match=r"\['p2'\] that do not exist"):
            PartitionTree.of([parent, lower])

    def test_every_partition_hangs_on_the_tree(self):
        """One that no parent lists is no part of it."""
        parent, lower, upper = self.valid()
        stray = replace(lower, partition_id="stray")

        with pytest.raises(SplitInvalid, match="1 partitions have no parent"):
            PartitionTree.of([parent, lower, upper, stray])

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda p, lower, upper: (p, [lower]), "exactly two children, not 1"),
            (lambda p, lower, upper: (p, [lower, upper, upper]), "exactly two children, not 3"),
            (
                lambda p, lower, upper: (replace(p, dimension=None), [lower, upper]),
                "dimension None",
            ),
            (lambda p, lower, upper: (replace(p, dimension=2), [lower, upper]), "dimension 2"),
            (lambda p, lower, upper: (p, [upper, lower]), "lower first"),
            (
                lambda p, lower, upper: (replace(p, child_ids=("p2", "p1")), [lower, upper]),
                "lower first",
            ),
            (
                lambda p, lower, upper: (p, [replace(lower, parent_id="x"), upper]),
                "Parent ID does not match on child: p1",
            ),
            (
                lambda p, lower, upper: (
                    p,
                    [lower, replace(upper, region=upper.region.with_range(0, Range(1, None)))],
                ),
                "do not share one split point",
            ),
            (
                lambda p, lower, upper: (p, [replace(lower, region=p.region), upper]),
                "do not share one split point",
            ),
            (
                lambda p, lower, upper: (
                    p,
                    [lower, replace(upper, region=upper.region.with_range(0, Range(0, 9)))],
                ),
                "do not cover exactly",
            ),
            (
                lambda p, lower, upper: (
                    p,
                    [lower, replace(upper, region=upper.region.with_range(1, Range("a", None)))],
                ),
                "do not cover exactly",
            ),
            (
                lambda p, lower, upper: (
                    p,
                    [replace(lower, region=lower.region.with_range(0, Range(-9, 0))), upper],
                ),
                "do not cover exactly",
            ),
        ],
    )
    def test_a_wrong_split_is_refused(self, change, message):
        """Naming the rule that is broken (PRT-11)."""
        parent, children = change(*self.valid())

        with pytest.raises(SplitInvalid, match=message):
            check_split(parent, children)

    def test_a_split_outside_its_parent_is_refused(self):
        """The children's common point must lie inside the parent."""
        parent, lower, upper = self.valid()
        narrow = replace(parent, region=parent.region.with_range(0, Range(5, None)))

        with pytest.raises(SplitInvalid, match="must lie inside"):
            check_split(narrow, [lower, upper])

    def test_a_right_split_passes(self):
        """Nothing is raised, and the tree takes it."""
        parent, lower, upper = self.valid()
        before = PartitionTree.of([replace(parent, child_ids=(), dimension=None)])

        after = split_tree(before, parent, [lower, upper])

        assert [leaf.partition_id for leaf in after.leaves()] == ["p1", "p2"]


class TestLeafGroups:
    """Leaves that share values of the first row key must be read together."""

    @given(points_lists)
    def test_each_leaf_is_a_group_while_only_the_first_key_is_split(self, points):
        """Then rows in key order pass from leaf to leaf."""
        tree = tree_of(*points, schema=TWO)

        groups = leaf_groups(tree.leaves())

        assert [group.leaves for group in groups] == [(leaf,) for leaf in tree.leaves()]

    def test_are_made_once_for_a_tree_and_anew_for_a_changed_one(self):
        """An ingest into a hundred thousand leaves asks for them each time."""
        tree = tree_of(10, schema=TWO)
        before = tree.leaf_groups()
        (leaf, _) = tree.leaves()
        parent, *children = split_partition(leaf, 5, new_id=iter(["a", "b"]).__next__)

        after = split_tree(tree, parent, children).leaf_groups()

        assert tree.leaf_groups() is before
        assert (len(before), len(after)) == (2, 3)

    @given(grown_trees())
    def test_groups_divide_the_first_row_key(self, tree):
        """Without gap or overlap, ascending, and every leaf is in the group of its values."""
        groups = leaf_groups(tree.leaves())

        bounds = [group.values.min for group in groups] + [groups[-1].values.max]
        assert [group.values.max for group in groups] == bounds[1:]
        assert (bounds[0], bounds[-1]) == (LEAST, None)
        assert sorted(leaf.partition_id for group in groups for leaf in group.leaves) == sorted(
            leaf.partition_id for leaf in tree.leaves()
        )
        for group in groups:
            for leaf in group.leaves:
                assert leaf.region.ranges[0].intersection(group.values) == leaf.region.ranges[0]

    @given(grown_trees())
    def test_groups_are_as_small_as_can_be(self, tree):
        """Inside a group every value of the first key but the last hangs together with the next."""
        for group in leaf_groups(tree.leaves()):
            inner_bounds = {leaf.region.ranges[0].min for leaf in group.leaves} - {group.values.min}
            for bound in inner_bounds:
                assert any(
                    leaf.region.ranges[0].min < bound and bound in leaf.region.ranges[0]
                    for leaf in group.leaves
                )
