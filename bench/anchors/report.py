"""Prints the table: before, now, the best of the peers, and whether what is wanted was reached."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from bench.anchors.figures import BEFORE, NOW, Figures
from bench.anchors.rows import EMBEDDED, NO_PEERS, ROWS, Row

HEADS = (
    *("work", "before", "now", "now / before", "best peer", "now / best"),
    *("wanted", "reached", "peak MB"),
)


def table(seen: Figures, keys: Iterable[str]) -> list[str]:
    """Return the lines of a Markdown table of those rows that have figures."""
    chosen = set(keys)
    cells = [line(seen, row) for row in ROWS if row.key in chosen and seen.figures.get(row.key)]
    return markdown(HEADS, cells)


def table_of_systems(seen: Figures, section: str) -> list[str]:
    """Return a table with a line for each system, of those rows of a section that a peer has."""
    rows = [
        row
        for row in ROWS
        if row.section == section and set(seen.figures.get(row.key, ())) - {BEFORE, NOW}
    ]
    systems = sorted({name for row in rows for name in seen.figures[row.key]} - {BEFORE, NOW})
    heads = ("system", *(f"{work(seen, row)}, {row.unit}".removesuffix(", ") for row in rows))
    figures = {name: [seen.middle(row.key, name) for row in rows] for name in (NOW, *systems)}
    names = {NOW: "**ours**"}
    return markdown(
        heads,
        [
            (names.get(name, name), *("-" if each is None else number(each) for each in found))
            for name, found in figures.items()
        ],
    )


def markdown(heads: Sequence[str], cells: Sequence[Sequence[str]]) -> list[str]:
    """Return a table in columns that are as wide as they must be."""
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    return [
        "| " + " | ".join(text.ljust(w) for text, w in zip(each, widths, strict=True)) + " |"
        for each in [heads, ["-" * width for width in widths], *cells]
    ]


def line(seen: Figures, row: Row) -> tuple[str, ...]:
    """The cells of a row."""
    before, now = seen.middle(row.key, BEFORE), seen.middle(row.key, NOW)
    against, figure = compared(seen, row)
    return (
        work(seen, row),
        told(before, row.unit),
        told(now, row.unit),
        ratio(now, before),
        (f"{against} {told(figure, row.unit)}" if figure is not None else "-")
        + in_brackets(seen, row),
        ratio(now, figure),
        row.wanted,
        verdict(seen, row, now),
        memory(seen, row),
    )


def work(seen: Figures, row: Row) -> str:
    """What is done in a row, with its sizes."""
    return row.work.format(**{name: f"{size:,}" for name, size in seen.sizes.items()})


def compared(seen: Figures, row: Row) -> tuple[str, float | None]:
    """The peer that a row is compared with, and its figure."""
    if row.against and row.against != "best":
        return row.against, seen.middle(row.key, row.against)
    ours = {BEFORE, NOW, *EMBEDDED, *NO_PEERS}
    found = {
        name: seen.middle(row.key, name) or 0.0
        for name in seen.figures[row.key]
        if name not in ours
    }
    if not found:
        return "", None
    best = (max if row.more_is_better else min)(found, key=found.__getitem__)
    return best, found[best]


def in_brackets(seen: Figures, row: Row) -> str:
    """The best of the stores that give no Arrow."""
    found = {
        name: seen.middle(row.key, name) or 0.0
        for name in seen.figures[row.key]
        if name in EMBEDDED
    }
    if not found:
        return ""
    best = min(found, key=found.__getitem__)
    return f" ({best} {told(found[best], row.unit)})"


def verdict(seen: Figures, row: Row, now: float | None) -> str:
    """Whether what is wanted was reached at these sizes."""
    if now is None or row.limit is None:
        return ""
    limit = row.limit
    if row.against:
        _, figure = compared(seen, row)
        if figure is None:
            return "not measured"
        limit *= figure
    reached = now >= limit if row.more_is_better else now <= limit
    return "yes" if reached else "no"


def memory(seen: Figures, row: Row) -> str:
    """Peak MB of before and now."""
    found = [seen.memory.get(row.key, {}).get(name) for name in (BEFORE, NOW)]
    if not any(found):
        return ""
    return ", ".join(f"{median(each):,.0f}" if each else "-" for each in found)


def ratio(value: float | None, of: float | None) -> str:
    """One figure divided by another, where both are there."""
    return number(value / of) if value is not None and of else ""


def told(value: float | None, unit: str) -> str:
    """A figure with its unit."""
    return "-" if value is None else f"{number(value)} {unit}".strip()


def number(value: float) -> str:
    """Three digits that count.

    >>> [number(value) for value in (0.01234, 1.5, 12.34, 1234.5)]
    ['0.0123', '1.50', '12.3', '1,234']
    """
    if value == int(value) and value < 1000:
        return str(int(value))
    digits = next((d for limit, d in ((0.1, 4), (1, 3), (10, 2), (100, 1)) if value < limit), 0)
    return f"{value:,.{digits}f}"
