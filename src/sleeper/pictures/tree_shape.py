"""Lays out a partition tree: which boxes a picture has, and how many leaves each stands for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from sleeper.language.value_classes import dataclass
from sleeper.model.keys import key_type, smallest_value, value_to_text
from sleeper.model.partitions import Partition, PartitionTree
from sleeper.model.schema import Schema
from sleeper.state.files.file_references import PartitionTotals

_NOTHING: Final = PartitionTotals(
    references=0, rows=0, rows_exact_whole=0, references_on_jobs=0, estimated=False
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A partition with everything below it.

    Attributes:
        partition: The top of it.
        depth: How far that is below the root.
        first_leaf: Number of leaves before it, in key order.
        leaves: Number of leaves in it.
        lower_leaves: Number of those below its split point; 0 for a leaf.
        deepest: Depth of its deepest leaf.
        files: References in it, its top included.
        rows: Their rows.
        own_files: References of its top alone.
        is_merged: True if it is drawn as one box although it has children.
    """

    partition: Partition
    depth: int
    first_leaf: int
    leaves: int
    lower_leaves: int
    deepest: int
    files: int
    rows: int
    own_files: int
    is_merged: bool = False


@dataclass(frozen=True, slots=True)
class _Sums:
    leaves: int
    height: int
    files: int
    rows: int


def branches(
    tree: PartitionTree,
    totals: Mapping[str, PartitionTotals],
    *,
    leaves_min: float,
    depth_max: int,
) -> Iterator[Branch]:
    """Yield the branches to draw, a parent before its children, in key order.

    Args:
        tree: The partitions.
        totals: Files and rows by partition; partitions without files may be missing.
        leaves_min: A branch of several leaves, but fewer than this, is not divided further.
        depth_max: Neither is one this far below the root.
    """
    sums = _sums(tree, totals)
    waiting = [(tree.root, 0, 0)]
    while waiting:
        partition, depth, first = waiting.pop()
        here = sums[partition.partition_id]
        is_merged = not partition.is_leaf and (here.leaves < leaves_min or depth >= depth_max)
        yield Branch(
            partition=partition,
            depth=depth,
            first_leaf=first,
            leaves=here.leaves,
            lower_leaves=sums[partition.child_ids[0]].leaves if partition.child_ids else 0,
            deepest=depth + here.height,
            files=here.files,
            rows=here.rows,
            own_files=totals.get(partition.partition_id, _NOTHING).references,
            is_merged=is_merged,
        )
        if partition.is_leaf or is_merged:
            continue
        lower, upper = (tree.partition(child) for child in partition.child_ids)
        middle = first + sums[lower.partition_id].leaves
        waiting += [(upper, depth + 1, middle), (lower, depth + 1, first)]


def _sums(tree: PartitionTree, totals: Mapping[str, PartitionTotals]) -> dict[str, _Sums]:
    """Add up leaves, files and rows of each partition, children before their parents."""
    order = [tree.root]
    for partition in order:
        order.extend(tree.partition(child) for child in partition.child_ids)
    sums: dict[str, _Sums] = {}
    for partition in reversed(order):
        own = totals.get(partition.partition_id, _NOTHING)
        below = [sums[child] for child in partition.child_ids]
        sums[partition.partition_id] = _Sums(
            sum(each.leaves for each in below) or 1,
            1 + max(each.height for each in below) if below else 0,
            own.references + sum(each.files for each in below),
            own.rows + sum(each.rows for each in below),
        )
    return sums


def split_text(partition: Partition, tree: PartitionTree, schema: Schema) -> str:
    """Return where a partition was split, such as `station S500`; nothing for a leaf."""
    if partition.dimension is None:
        return ""
    field = schema.row_keys[partition.dimension]
    lower = tree.partition(partition.child_ids[0])
    point = lower.region.ranges[partition.dimension].max
    name = f"{field.name} " if len(schema.row_keys) > 1 else ""
    return name + value_to_text(key_type(field), point)


def region_text(partition: Partition, schema: Schema) -> str:
    """Return the keys of a partition, such as `station from S250 to before S500`."""
    parts = []
    for field, limits in zip(schema.row_keys, partition.region.ranges, strict=True):
        kind = key_type(field)
        low = "" if limits.min == smallest_value(kind) else value_to_text(kind, limits.min)
        high = "" if limits.max is None else value_to_text(kind, limits.max)
        limit = f"from {low}" if low else ""
        if high:
            limit += " to before " + high if low else "before " + high
        if limit:
            parts.append(f"{field.name} {limit}")
    return ", ".join(parts) or "all keys"
