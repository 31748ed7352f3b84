"""The partition tree: which leaf a key belongs to, and how leaves are split and merged.

The leaves' regions cover the key space without gap or overlap. A partition that was split
stays in the tree and may still have references to files, so a reader of a leaf also reads the
files of its ancestors (rule PRT-13).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from typing import Any

from sleeper.errors import PartitionNotFound, QueryInvalid, SplitInvalid, SplitPointsInvalid
from sleeper.html.values import NotebookHtml
from sleeper.model.collector_pause import making_many_objects
from sleeper.model.keys import Key, checked_value, key_type, smallest_value, value_meant
from sleeper.model.ranges import Range, Region, split_range, whole_region
from sleeper.model.schema import Schema

MERGED_IDS_MAX = 100_000
"""Ids of merged leaves that a table remembers. Part of the format: all replays must agree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition(NotebookHtml):
    """A region of keys and its place in the tree.

    Attributes:
        partition_id: Unique within the table.
        region: The keys that belong to it.
        parent_id: None for the root.
        child_ids: Empty for a leaf; otherwise (lower, upper).
        dimension: Which row key field it was split on; None for a leaf.

    Source: rule PRT-5.
    """

    partition_id: str
    region: Region
    parent_id: str | None = None
    child_ids: tuple[str, ...] = ()
    dimension: int | None = None

    @property
    def is_leaf(self) -> bool:
        """True when it has no children."""
        return not self.child_ids


@dataclass(frozen=True, slots=True)
class PartitionTree:
    """All partitions of a table, by id. Immutable: every change returns a new tree.

    Attributes:
        partitions: Partition id to partition.
        root_id: The one without a parent.
        merged: Maps the id of a leaf that was merged with its sibling to their parent, which is a
            leaf now. References from writers with a stale tree go to the parent. Holds the ids
            that were merged last, in their order; older ones are dropped.
    """

    partitions: Mapping[str, Partition]
    root_id: str
    merged: Mapping[str, str] = field(default_factory=dict)
    _groups: list[LeafGroup] = field(default_factory=list, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, partitions: Iterable[Partition]) -> PartitionTree:
        """Build a tree and check it.

        Raises:
            SplitInvalid: the partitions are not a tree, or a split is wrong (rule PRT-10).
        """
        by_id = {partition.partition_id: partition for partition in partitions}
        roots = [p.partition_id for p in by_id.values() if p.parent_id is None]
        if len(roots) != 1:
            raise SplitInvalid(f"a partition tree has exactly one root, not {len(roots)}: {roots}")
        tree = cls(by_id, roots[0])
        tree._check()
        return tree

    def __len__(self) -> int:
        return len(self.partitions)

    def __contains__(self, partition_id: str) -> bool:
        return partition_id in self.partitions

    def partition(self, partition_id: str) -> Partition:
        """Return one partition.

        Raises:
            PartitionNotFound: the tree has no partition with this id (rule STS-10).
        """
        try:
            return self.partitions[partition_id]
        except KeyError:
            raise PartitionNotFound(f"Partition not found: {partition_id}") from None

    @property
    def root(self) -> Partition:
        """The partition of all keys."""
        return self.partitions[self.root_id]

    @property
    def leaf_count(self) -> int:
        """The number of leaves."""
        return (len(self.partitions) + 1) // 2

    def leaves(self) -> Iterator[Partition]:
        """Yield the leaves in key order, the lower child first (rule PRT-9)."""
        waiting = [self.root]
        while waiting:
            here = waiting.pop()
            if here.is_leaf:
                yield here
            waiting.extend(self.partitions[child] for child in reversed(here.child_ids))

    def leaf_groups(self) -> Sequence[LeafGroup]:
        """Return all leaves in groups; they are made once."""
        if not self._groups:
            self._groups[:] = leaf_groups(self.leaves())
        return self._groups

    def leaf_of(self, key: Key) -> Partition:
        """Return the leaf that `key` belongs to (rule PRT-8).

        Raises:
            QueryInvalid: the key does not have one value per row key field.
        """
        here = self.root
        if len(key) != len(here.region.ranges):
            raise QueryInvalid(
                f"a key needs {len(here.region.ranges)} values, not {len(key)}: {key!r}"
            )
        while here.child_ids:
            lower, upper = (self.partitions[child] for child in here.child_ids)
            assert here.dimension is not None
            bound = lower.region.ranges[here.dimension].max
            here = lower if key[here.dimension] < bound else upper
        return here

    def leaves_overlapping(
        self, regions: Sequence[Region]
    ) -> Iterator[tuple[Partition, tuple[Region, ...]]]:
        """Yield the leaves that share keys with any of `regions`, each once, in key order.

        Each comes with the parts of the regions that are inside it. A region is compared with the
        partitions above its leaves alone, so that many regions may be asked for in many leaves.
        """
        waiting = [(self.root, tuple(dict.fromkeys(regions)))]
        while waiting:
            here, asked = waiting.pop()
            inside = [each for region in asked if (each := region.intersection(here.region))]
            if not inside:
                continue
            if here.is_leaf:
                yield here, tuple(inside)
            waiting += [(self.partitions[child], tuple(inside)) for child in here.child_ids[::-1]]

    def ancestors(self, partition_id: str) -> Iterator[Partition]:
        """Yield the parents of a partition, the nearest first, the root last."""
        parent_id = self.partition(partition_id).parent_id
        while parent_id is not None:
            parent = self.partitions[parent_id]
            yield parent
            parent_id = parent.parent_id

    def ids_upwards(self, partition_id: str) -> list[str]:
        """Return the ids of a partition and of its parents, its own first, the root's last."""
        return [partition_id, *(each.partition_id for each in self.ancestors(partition_id))]

    def ids_below(self, partition_id: str) -> list[str]:
        """Return the ids of all partitions that a partition was split into, in any order."""
        found, waiting = list[str](), [*self.partition(partition_id).child_ids]
        while waiting:
            found.append(waiting.pop())
            waiting += self.partitions[found[-1]].child_ids
        return found

    def with_merged(self, parent_id: str) -> PartitionTree:
        """Return the tree after a merge: two leaves are removed, and their parent becomes a leaf.

        Raises:
            PartitionNotFound: the tree has no such partition.
            ValueError: its children are not two leaves.
        """
        parent = self.partition(parent_id)
        children = [self.partitions[child_id] for child_id in parent.child_ids]
        if not children or not all(child.is_leaf for child in children):
            raise ValueError(f"partition {parent_id!r} is not the parent of two leaves")
        kept = {name: each for name, each in self.partitions.items() if each not in children}
        kept[parent_id] = replace(parent, child_ids=(), dimension=None)
        gone = dict.fromkeys(parent.child_ids, parent_id)
        merged = {**self.merged, **gone}
        return replace(self, partitions=kept, merged=_last_items(merged, MERGED_IDS_MAX))

    def surviving_partition(self, partition_id: str) -> str:
        """Return the partition that has these rows now: itself, or the one it was merged into.

        An unknown id is returned unchanged.
        """
        while partition_id not in self.partitions and partition_id in self.merged:
            partition_id = self.merged[partition_id]
        return partition_id

    def _check(self) -> None:
        reached = 0
        waiting = [self.root]
        while waiting:
            here = waiting.pop()
            reached += 1
            missing = [child for child in here.child_ids if child not in self.partitions]
            if missing:
                raise SplitInvalid(
                    f"partition {here.partition_id!r} has children {missing} that do not exist"
                )
            if here.child_ids:
                children = [self.partitions[child] for child in here.child_ids]
                if not _is_split(here, children):
                    check_split(here, children)
                waiting.extend(children)
        if reached != len(self.partitions):
            raise SplitInvalid(
                f"{len(self.partitions) - reached} partitions have no parent in the tree"
            )


def _last_items(mapping: dict[str, str], count: int) -> dict[str, str]:
    if len(mapping) <= count:
        return mapping
    return dict(islice(mapping.items(), len(mapping) - count, None))


def _is_split(parent: Partition, children: Sequence[Partition]) -> bool:
    """Return whether `check_split` accepts a split of one row key, without making any range.

    A tree of 100,000 leaves is checked in half of the time.
    """
    if len(children) != 2 or len(parent.region.ranges) != 1 or parent.dimension != 0:
        return False
    lower, upper = children
    (whole,), (low,), (high,) = parent.region.ranges, lower.region.ranges, upper.region.ranges
    point = low.max
    return (
        parent.child_ids == (lower.partition_id, upper.partition_id)
        and lower.parent_id == upper.parent_id == parent.partition_id
        and point is not None
        and point == high.min
        and low.min == whole.min < point
        and high.max == whole.max
        and (whole.max is None or point < whole.max)
    )


def check_split(parent: Partition, children: Sequence[Partition]) -> None:
    """Check that two children divide their parent's region.

    Raises:
        SplitInvalid: they do not; names the part of rule PRT-11 that is broken.
    """
    name = parent.partition_id
    if len(children) != 2:
        raise SplitInvalid(
            f"partition {name!r} must have exactly two children, not {len(children)}"
        )
    dimension = parent.dimension
    if dimension is None or not 0 <= dimension < len(parent.region.ranges):
        raise SplitInvalid(
            f"partition {name!r} is split on dimension {dimension}, which is not a row key"
        )
    if parent.child_ids != tuple(child.partition_id for child in children):
        raise SplitInvalid(f"partition {name!r} must list its children lower first")
    for child in children:
        if child.parent_id != name:
            raise SplitInvalid(f"Parent ID does not match on child: {child.partition_id}")
    lower, upper = children
    point = lower.region.ranges[dimension].max
    if point is None or upper.region.ranges[dimension].min != point:
        raise SplitInvalid(f"the children of partition {name!r} do not share one split point")
    low, high = split_range_checked(name, parent.region.ranges[dimension], point)
    if (lower.region, upper.region) != (
        parent.region.with_range(dimension, low),
        parent.region.with_range(dimension, high),
    ):
        raise SplitInvalid(f"the children of partition {name!r} do not cover exactly its region")


def split_range_checked(name: str, whole: Range, point: Any) -> tuple[Range, Range]:
    """Split a range; an error message names the partition."""
    try:
        return split_range(whole, point)
    except QueryInvalid as error:
        raise SplitInvalid(f"partition {name!r}: {error}") from None


def split_partition(
    leaf: Partition, at: Any, *, dimension: int = 0, new_id: Callable[[], str]
) -> tuple[Partition, Partition, Partition]:
    """Return (the leaf as a parent, lower child, upper child) of a split at `at` (rule SPL-5).

    Raises:
        SplitInvalid: `at` is not inside the leaf, above its minimum.
    """
    halves = split_range_checked(leaf.partition_id, leaf.region.ranges[dimension], at)
    lower, upper = (
        Partition(
            partition_id=new_id(),
            region=leaf.region.with_range(dimension, half),
            parent_id=leaf.partition_id,
        )
        for half in halves
    )
    parent = replace(leaf, child_ids=(lower.partition_id, upper.partition_id), dimension=dimension)
    return parent, lower, upper


@making_many_objects()
def tree_from_split_points(
    schema: Schema, split_points: Sequence[Any], *, new_id: Callable[[], str]
) -> PartitionTree:
    """Build a balanced tree whose leaves are separated by `split_points`, on the first row key.

    Neighbours are paired from left to right, level by level; an odd one moves up. N points make
    N + 1 leaves and 2 N + 1 partitions (rules PRT-6, PRT-7). No points make one leaf, `root`.

    Raises:
        SplitPointsInvalid: wrong type, or not strictly ascending (rule TBL-9).
    """
    whole = whole_region(schema)
    points = checked_split_points(schema, split_points)
    if not points:
        return PartitionTree.of([Partition(partition_id="root", region=whole)])
    bounds = [whole.ranges[0].min, *points, None]
    layer = [
        Partition(partition_id=new_id(), region=whole.with_range(0, Range(low, high)))
        for low, high in pairwise(bounds)
    ]
    done: list[Partition] = []
    while len(layer) > 1:
        above = []
        for lower, upper in zip(layer[::2], layer[1::2], strict=False):
            parent = Partition(
                partition_id=new_id(),
                region=whole.with_range(
                    0, Range(lower.region.ranges[0].min, upper.region.ranges[0].max)
                ),
                child_ids=(lower.partition_id, upper.partition_id),
                dimension=0,
            )
            done += [
                Partition(  # `replace` takes three times as long
                    partition_id=half.partition_id,
                    region=half.region,
                    parent_id=parent.partition_id,
                    child_ids=half.child_ids,
                    dimension=half.dimension,
                )
                for half in (lower, upper)
            ]
            above.append(parent)
        layer = above + ([layer[-1]] if len(layer) % 2 else [])
    return PartitionTree.of([*done, *layer])


def checked_split_points(schema: Schema, split_points: Sequence[Any]) -> list[Any]:
    """Check split points of the first row key and return them as plain values (rule TBL-9).

    Raises:
        SplitPointsInvalid: one has the wrong type, is repeated, or is below the one before it.
    """
    field = schema.row_keys[0]
    kind = key_type(field)
    if isinstance(split_points, str | bytes | Mapping) or not isinstance(split_points, Iterable):
        raise SplitPointsInvalid(
            f"split_points must be a list of values of {field.name!r}, not {split_points!r}"
        )
    points: list[Any] = []
    for given in split_points:
        try:
            point = checked_value(field, given)
        except QueryInvalid:
            raise SplitPointsInvalid(
                f"Invalid split point: {given!r} should be of type {kind.value}"
                f"{value_meant(field, given)}"
            ) from None
        if points and point == points[-1]:
            raise SplitPointsInvalid(
                f"Invalid split point: {given!r} - duplicate found: give each once"
            )
        if points and point < points[-1]:
            raise SplitPointsInvalid(
                f"Invalid split point: {points[-1]!r} should be less than {given!r}: give them "
                "sorted"
            )
        if point == smallest_value(kind):
            raise SplitPointsInvalid(
                f"Invalid split point: {given!r} is the least value of {kind.value}: "
                "the leaf below it would be empty"
            )
        points.append(point)
    return points


def split_points_of(tree: PartitionTree) -> list[Any]:
    """Return the distinct lower limits of the leaves on the first row key, except the lowest.

    Source: rule TBL-11.
    """
    least = tree.root.region.ranges[0].min
    lows = {leaf.region.ranges[0].min for leaf in tree.leaves()}
    return sorted(low for low in lows if low != least)


@dataclass(frozen=True, slots=True)
class LeafGroup:
    """Leaves that share values of the first row key with each other, and with no other leaf.

    Groups follow each other in key order. The rows of leaves of one group interleave. If a tree is
    split on its first row key only, every group is one leaf.

    Attributes:
        values: The range of the first row key that the group covers.
        leaves: Its leaves, in tree order.
    """

    values: Range
    leaves: tuple[Partition, ...]


@making_many_objects()
def leaf_groups(leaves: Iterable[Partition]) -> list[LeafGroup]:
    """Group leaves so that the groups' ranges of the first row key are disjoint and ascending."""
    groups: list[LeafGroup] = []
    for leaf in sorted(leaves, key=lambda leaf: leaf.region.ranges[0].min):
        here = leaf.region.ranges[0]
        last = groups[-1] if groups else None
        if last is None or (last.values.max is not None and last.values.max <= here.min):
            groups.append(LeafGroup(here, (leaf,)))
            continue
        highs = (last.values.max, here.max)
        high = None if None in highs else max(highs)
        groups[-1] = LeafGroup(Range(last.values.min, high), (*last.leaves, leaf))
    return groups
