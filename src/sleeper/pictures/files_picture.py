"""Draws how many files and rows each leaf has, in key order."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from statistics import median
from typing import Final

from sleeper.language.value_classes import dataclass
from sleeper.pictures.amounts import compact, counted
from sleeper.pictures.bars import LEFT, Bar, bars, groups
from sleeper.pictures.markup import joined
from sleeper.pictures.svg import WIDE, Svg, heading, label

_HEIGHT: Final = 150
_LEFT: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafAmounts:
    """What a leaf holds.

    Attributes:
        keys: Its region, as text.
        files: References on it.
        rows: Their rows.
    """

    keys: str
    files: int
    rows: int


def files_picture(
    leaves: Sequence[LeafAmounts],
    *,
    title: str = "Leaves",
    split_rows: int | None = None,
    width: int = WIDE,
) -> Svg:
    """Return a picture of the files and rows of each leaf.

    Many leaves are drawn in groups of neighbours, with the largest of each group.

    Args:
        leaves: The leaves in key order.
        title: Its heading.
        split_rows: The number of rows at which a leaf is split.
        width: In pixels.
    """
    parts = groups(len(leaves), width)
    files = [each.files for each in leaves]
    rows = [each.rows for each in leaves]
    summary = (
        f"{counted(len(leaves), 'leaf', 'leaves')} in key order; files a leaf: "
        f"median {compact(median(files))}, most {compact(max(files))}; rows a leaf: "
        f"median {compact(median(rows))}, most {compact(max(rows))}"
    )
    if len(parts) < len(leaves):
        summary += f"; a bar is the largest of about {len(leaves) // len(parts)} neighbours"
    above, top = heading(title, summary, left=_LEFT, width=width)
    files_y, rows_y = top + 20, top + _HEIGHT + 76
    drawn = partial(bars, height=_HEIGHT, width=width)
    below = rows_y + _HEIGHT + 40
    body = joined(
        [
            above,
            drawn("Files a leaf", _bars(leaves, parts, files, "file"), top=files_y),
            drawn("Rows a leaf", _bars(leaves, parts, rows, "row"), top=rows_y, limit=split_rows),
            label("keys, from the least to the greatest \u2192", LEFT, below, "soft"),
        ]
    )
    return Svg(body, width=width, height=below + 16, title=title, description=summary + ".")


def _bars(
    leaves: Sequence[LeafAmounts], parts: Sequence[range], amounts: Sequence[int], noun: str
) -> list[Bar]:
    shown = []
    for part in parts:
        largest = max(part, key=amounts.__getitem__)
        tip = f"{leaves[largest].keys}: {counted(amounts[largest], noun)}"
        if len(part) > 1:
            tip = f"largest of {len(part)} leaves: {tip}"
        shown.append(Bar(value=amounts[largest], tip=tip))
    return shown
