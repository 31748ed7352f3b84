"""Draws a partition tree: the root on top, leaves in key order below, darker with more rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from sleeper.html.markup import Markup, compact, counted, joined, shortened
from sleeper.model.keys import key_type, smallest_value, value_to_text
from sleeper.model.partitions import Partition, PartitionTree
from sleeper.model.schema import Schema
from sleeper.pictures.svg import LEVELS, WIDE, Svg, box, heading, label, line, shade_of
from sleeper.state.file_references import PartitionTotals

# ---------------------------------------------------------------- tree shape
#
# Lays out a partition tree: which boxes a picture has, and how many leaves each stands for.

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


_MARGIN: Final = 16
_ROW: Final = 34
_LEAF: Final = 46
_GAP: Final = 3
_NARROW: Final = 34
"""A branch of several leaves that is narrower, in pixels, is drawn as one box."""
_DEPTH_MAX: Final = 12
_LETTER: Final = 7.4
"""Pixels that a letter needs."""


def tree_picture(
    tree: PartitionTree,
    totals: Mapping[str, PartitionTotals],
    schema: Schema,
    *,
    title: str = "Partition tree",
    width: int = WIDE,
) -> Svg:
    """Return a picture of a partition tree. Branches of many narrow leaves are drawn as one box.

    Args:
        tree: The partitions.
        totals: Files and rows by partition.
        schema: The table's.
        title: Its heading.
        width: In pixels.
    """
    per_leaf = (width - 2 * _MARGIN) / tree.leaf_count
    drawn = list(branches(tree, totals, leaves_min=_NARROW / per_leaf, depth_max=_DEPTH_MAX))
    most = max(each.rows / each.leaves for each in drawn if _is_end(each))
    lowest = max(each.depth for each in drawn)
    root = drawn[0]
    merged = sum(each.is_merged for each in drawn)
    summary = (
        f"{counted(root.leaves, 'leaf', 'leaves')} at depth up to {root.deepest}, "
        f"{counted(root.files, 'file reference')}, {counted(root.rows, 'row')}"
    )
    if merged:
        summary += "; a box with two lines below stands for so many leaves"
    above, top = heading(title, summary, left=_MARGIN, width=width)
    height = top + lowest * _ROW + _LEAF + 44
    boxes = (_drawn(each, tree, schema, (top, per_leaf), most) for each in drawn)
    body = joined([above, *boxes, _scale(height - 18, most)])
    return Svg(body, width=width, height=height, title=title, description=summary + ".")


def _is_end(branch: Branch) -> bool:
    return branch.partition.is_leaf or branch.is_merged


def _drawn(
    branch: Branch,
    tree: PartitionTree,
    schema: Schema,
    place: tuple[int, float],
    most: float,
) -> Markup:
    """Return the box of a branch. `place` is where the root's is, and the width of a leaf."""
    top, per_leaf = place
    x = _MARGIN + branch.first_leaf * per_leaf
    width = branch.leaves * per_leaf
    if width < 0.3:  # less than can be seen; its neighbours show where it is
        return Markup()
    gap = min(_GAP, width / 4)
    y = top + branch.depth * _ROW
    keys = region_text(branch.partition, schema)
    tip = f"{keys}: {counted(branch.rows, 'row')}, {counted(branch.files, 'file')}"
    if _is_end(branch):
        return _end(
            branch, (x + gap / 2, y, width - gap), tip, shade_of(branch.rows, most * branch.leaves)
        )
    split = split_text(branch.partition, tree, schema)
    letters = int((width - gap - 12) / _LETTER)
    words = f"< {split} \u2264" if len(split) + 4 <= letters else shortened(split, letters)
    if branch.own_files and letters > len(words) + 12:
        words += f"  \u00b7  {counted(branch.own_files, 'file')} here"
    tip += f"; split at {split}"
    half = len(words) * _LETTER / 2 + 6
    cut = x + branch.lower_leaves * per_leaf
    middle = min(max(cut, x + half), x + width - half)
    return joined(
        [
            box(x + gap / 2, y, width - gap, _ROW - 6, "fill0", "box", tip=tip),
            line(cut, y + _ROW - 6, cut, y + _ROW, "line"),
            label(words, middle, y + 18, "middle") if letters > 2 else "",
        ]
    )


def _end(branch: Branch, place: tuple[float, float, float], tip: str, shade: int) -> Markup:
    x, y, width = place
    if branch.is_merged:
        tip = f"{counted(branch.leaves, 'leaf', 'leaves')}, {tip}, depth to {branch.deepest}"
    noun = "row" if branch.rows == 1 else "rows"
    lines = [f"{compact(branch.rows)} {noun}", counted(branch.files, "file")]
    short = [compact(branch.rows), compact(branch.files)]
    if branch.is_merged:
        lines, short = [f"{compact(branch.leaves)} leaves", lines[0]], [compact(branch.leaves), ""]
    letters = width / _LETTER
    shown = lines if max(map(len, lines)) <= letters else short
    texts: list[Markup] = []
    if max(map(len, shown)) <= letters:
        ink = (f"on{shade}", "middle")
        texts = [label(shown[0], x + width / 2, y + 19, *ink)]
        texts.append(label(shown[1], x + width / 2, y + 35, *ink))
    stack = []
    if branch.is_merged:  # a second edge below shows that there is more under it
        stack.append(line(x + 2, y + _LEAF + 3, x + width - 2, y + _LEAF + 3, "line"))
        stack.append(line(x + 4, y + _LEAF + 6, x + width - 4, y + _LEAF + 6, "line"))
    return joined([box(x, y, width, _LEAF, f"fill{shade}", "box", tip=tip), *texts, *stack])


def _scale(y: float, most: float) -> Markup:
    """Return the legend of the shades."""
    words = "rows a leaf: 0"
    start = _MARGIN + len(words) * _LETTER + 2
    boxes = [box(start + n * 20, y - 10, 20, 12, f"fill{n}", "box", rx=0) for n in range(LEVELS)]
    end = label(compact(most), start + LEVELS * 20 + 6, y, "soft")
    return joined([label(words, _MARGIN, y, "soft"), *boxes, end])
