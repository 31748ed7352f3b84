"""Plans how limits of partitions that may not stay are taken out of a partition tree. Pure.

1. the highest partitions that are split at such a limit are found: all partitions that have it as
   a limit are below them
2. each becomes a leaf again: its leaves are merged, from below
3. it is split as it was, but at another value in place of each such limit. Where there is no other
   value, the side with more leaves gets all of it
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from sleeper.model.partitions import Partition, PartitionTree
from sleeper.model.ranges import Range, Region
from sleeper.ports.ids import NewId
from sleeper.state.table_state import Transaction
from sleeper.state.transactions.partitions import ExtendPartitionTree, MergePartitions

IsGone = Callable[[int, Any], bool]
"""Returns whether a value of a row key field may not stay."""

Instead = Callable[[Region, int, Any], Any | None]
"""Returns the value at which a region is split instead; None without any."""


def partitions_split_at(tree: PartitionTree, is_gone: IsGone) -> list[Partition]:
    """Return the highest partitions that are split at a value that may not stay."""
    found, waiting = [], [tree.root]
    while waiting:
        here = waiting.pop()
        if here.is_leaf:
            continue
        assert here.dimension is not None
        if is_gone(here.dimension, split_value(tree, here)):
            found.append(here)
        else:
            waiting += [tree.partition(child) for child in here.child_ids]
    return found


def split_value(tree: PartitionTree, parent: Partition) -> Any:
    """Return the value at which a partition was split."""
    assert parent.dimension is not None
    return tree.partition(parent.child_ids[0]).region.ranges[parent.dimension].max


def leaves_below(tree: PartitionTree, partition_id: str) -> Iterator[Partition]:
    """Yield the leaves of a partition; itself, if it is one."""
    waiting = [tree.partition(partition_id)]
    while waiting:
        here = waiting.pop()
        if here.is_leaf:
            yield here
        waiting += [tree.partition(child) for child in here.child_ids]


def without_limits(
    tree: PartitionTree, top: Partition, is_gone: IsGone, instead: Instead, new_id: NewId
) -> list[Transaction]:
    """Return the transactions that split a partition at other values; applied together.

    Args:
        tree: The tree.
        top: One of `partitions_split_at`.
        is_gone: Says which limits may not stay.
        instead: Chooses other ones.
        new_id: Makes ids of partitions.
    """
    merges = [
        MergePartitions(parent_id=parent.partition_id, child_ids=parent.child_ids)
        for parent in _parents_from_below(tree, top)
    ]
    split = _Rebuilt(tree, is_gone, instead, new_id)
    parent = split.under(top, replace(top, child_ids=(), dimension=None))
    if parent.is_leaf:
        return [*merges]
    return [*merges, ExtendPartitionTree(updated=(parent,), new=(*split.made,))]


def splits_at(tree: PartitionTree, top: Partition, is_gone: IsGone) -> int:
    """Return how many partitions below one, itself included, are split at such values."""
    return sum(
        is_gone(each.dimension, split_value(tree, each))
        for each in _parents_from_below(tree, top)
        if each.dimension is not None
    )


def _parents_from_below(tree: PartitionTree, top: Partition) -> list[Partition]:
    found, waiting = [], [top]
    while waiting:
        here = waiting.pop()
        if not here.is_leaf:
            found.append(here)
            waiting += [tree.partition(child) for child in here.child_ids]
    return found[::-1]


@dataclass(slots=True)
class _Rebuilt:
    """A subtree that is made again in another region.

    Attributes:
        tree: The tree that it is made after.
        is_gone, instead, new_id: As for `without_limits`.
        made: The partitions below the top that were made.
    """

    tree: PartitionTree
    is_gone: IsGone
    instead: Instead
    new_id: NewId
    made: list[Partition]

    def __init__(
        self, tree: PartitionTree, is_gone: IsGone, instead: Instead, new_id: NewId
    ) -> None:
        self.tree, self.is_gone, self.instead, self.new_id = tree, is_gone, instead, new_id
        self.made = []

    def under(self, before: Partition, leaf: Partition) -> Partition:
        """Split a leaf as a partition was split, as far as its limits are inside, and may stay."""
        if before.is_leaf:
            return leaf
        assert before.dimension is not None
        lower, upper = (self.tree.partition(child) for child in before.child_ids)
        value = split_value(self.tree, before)
        if self.is_gone(before.dimension, value):
            value = self.instead(leaf.region, before.dimension, value)
            if value is None:
                return self.under(self._larger(lower, upper), leaf)
        side = leaf.region.ranges[before.dimension]
        if value <= side.min:
            return self.under(upper, leaf)
        if side.max is not None and value >= side.max:
            return self.under(lower, leaf)
        halves = [
            Partition(
                partition_id=self.new_id(),
                region=leaf.region.with_range(before.dimension, half),
                parent_id=leaf.partition_id,
            )
            for half in (Range(side.min, value), Range(value, side.max))
        ]
        self.made += [self.under(old, new) for old, new in zip((lower, upper), halves, strict=True)]
        ids = tuple(each.partition_id for each in halves)
        return replace(leaf, child_ids=ids, dimension=before.dimension)

    def _larger(self, lower: Partition, upper: Partition) -> Partition:
        sizes = [
            sum(1 for _ in leaves_below(self.tree, each.partition_id)) for each in (lower, upper)
        ]
        return lower if sizes[0] >= sizes[1] else upper
