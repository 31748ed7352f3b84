"""Draws a partition tree: the root on top, leaves in key order below, darker with more rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sleeper.model.partitions import PartitionTree
from sleeper.model.schema import Schema
from sleeper.pictures.amounts import compact, counted, shortened
from sleeper.pictures.markup import Markup, joined
from sleeper.pictures.svg import LEVELS, WIDE, Svg, box, heading, label, line, shade_of
from sleeper.pictures.tree_shape import Branch, branches, region_text, split_text
from sleeper.state.files.file_references import PartitionTotals

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
