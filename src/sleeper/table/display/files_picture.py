"""Draws how many files and rows each leaf has, in key order."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Final

from sleeper.language.value_classes import dataclass
from sleeper.table.display.amounts import compact, counted
from sleeper.table.display.bars import LEFT, WIDTH, Bar, bars, groups
from sleeper.table.display.markup import joined
from sleeper.table.display.svg import Svg, label

_HEIGHT: Final = 150


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
    leaves: Sequence[LeafAmounts], *, title: str = "Leaves", split_rows: int | None = None
) -> Svg:
    """Return a picture of the files and rows of each leaf.

    Many leaves are drawn in groups of neighbours, with the largest of each group.

    Args:
        leaves: The leaves in key order.
        title: Its heading.
        split_rows: The number of rows at which a leaf is split.
    """
    parts = groups(len(leaves))
    files = [each.files for each in leaves]
    rows = [each.rows for each in leaves]
    summary = (
        f"{counted(len(leaves), 'leaf', 'leaves')} in key order; files a leaf: "
        f"median {compact(median(files))}, most {compact(max(files))}; rows a leaf: "
        f"median {compact(median(rows))}, most {compact(max(rows))}"
    )
    if len(parts) < len(leaves):
        summary += f"; a bar is the largest of about {len(leaves) // len(parts)} neighbours"
    body = joined(
        [
            label(title, LEFT, 26, "title"),
            label(summary, LEFT, 46, "soft"),
            bars("Files a leaf", _bars(leaves, parts, files, "file"), top=80, height=_HEIGHT),
            bars(
                "Rows a leaf",
                _bars(leaves, parts, rows, "row"),
                top=290,
                height=_HEIGHT,
                limit=split_rows,
            ),
            label("keys, from the least to the greatest \u2192", LEFT, 482, "soft"),
        ]
    )
    return Svg(body, width=WIDTH, height=496, title=title, description=summary + ".")


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
