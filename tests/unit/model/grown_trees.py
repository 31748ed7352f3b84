"""Partition trees of two row keys that were split at random."""

from __future__ import annotations

from itertools import count

from hypothesis import strategies as st

from sleeper.model.partitions import Partition, PartitionTree, split_partition
from sleeper.model.ranges import whole_region
from sleeper.model.schema import Field, Primitive, Schema

TWO = Schema(row_keys=[Field("n", Primitive.LONG), Field("s", Primitive.STRING)])


def split_tree(tree, parent, children):
    """Return a tree after a split: the leaf is a parent, and its children are added."""
    changed = {each.partition_id: each for each in (parent, *children)}
    return PartitionTree.of({**tree.partitions, **changed}.values())


@st.composite
def grown_trees(draw):
    """Return a tree of two dimensions that was split at random, at random places."""
    numbers = count(1)
    tree = PartitionTree.of([Partition(partition_id="root", region=whole_region(TWO))])
    for _ in range(draw(st.integers(0, 10))):
        leaf = draw(st.sampled_from(list(tree.leaves())))
        dimension = draw(st.integers(0, 1))
        at = draw(st.integers(-9, 9) if dimension == 0 else st.text("abc", max_size=3))
        whole = leaf.region.ranges[dimension]
        if at in whole and at != whole.min:
            parent, *children = split_partition(
                leaf, at, dimension=dimension, new_id=lambda: f"p{next(numbers)}"
            )
            tree = split_tree(tree, parent, children)
    return tree
