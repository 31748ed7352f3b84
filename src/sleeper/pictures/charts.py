"""Draws the transactions of a table over time, and the rows that they added and removed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from math import ceil, floor, log10
from statistics import median
from typing import Final

from sleeper.html.markup import Markup, compact, counted, joined, time_text
from sleeper.pictures.svg import WIDE, Svg, box, heading, label, line

# ---------------------------------------------------------------- bars
#
# Draws rows of bars: an axis, a bar for each value or group of values, and a limit.

LEFT: Final = 64
RIGHT: Final = 20
BAR_MIN: Final = 5.5
"""Pixels that a bar needs; more values than have room are drawn in groups of neighbours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar.

    Attributes:
        value: Its height.
        below: Its length below the axis.
        tip: What is shown where a pointer rests on it.
    """

    value: float
    below: float = 0
    tip: str = ""


def groups(count: int, width: int = WIDE) -> list[range]:
    """Return the values that each bar stands for: as many bars as have room.

    >>> groups(3)
    [range(0, 1), range(1, 2), range(2, 3)]
    """
    if not count:
        return []
    bars = min(count, int((width - LEFT - RIGHT) / BAR_MIN))
    ends = [round(n * count / bars) for n in range(bars + 1)]
    return [range(ends[n], ends[n + 1]) for n in range(bars)]


def bars(
    name: str,
    shown: Sequence[Bar],
    *,
    top: float,
    height: float,
    width: int = WIDE,
    limit: float | None = None,
    written: Callable[[float], str] = compact,
) -> Markup:
    """Return a name and bars with an axis of values.

    Args:
        name: What a bar is.
        shown: The bars, from left to right.
        top: Where the name is.
        height: Of the bars.
        width: Of the picture.
        limit: A value that is marked with a dashed line, if it is near the bars.
        written: Writes values.
    """
    most = max((each.value for each in shown), default=0) or 1
    least = max((each.below for each in shown), default=0)
    near = limit is not None and limit <= 3 * most
    step = nice_step(max(most, limit or 0) if near else most)
    up = step * ceil((max(most, limit or 0) if near else most) / step)
    down = step * ceil(least / step)
    first, scale = top + 16, height / (up + down)
    zero = first + up * scale
    parts = [label(name, LEFT, top, "title")]
    if near and limit is not None:
        words = f"split at {written(limit)}: dashed"
        parts.append(label(words, width - RIGHT, top, "soft", "end"))
    ticks = [n * step for n in range(-round(down / step), round(up / step) + 1)]
    for tick in ticks:
        y = zero - tick * scale
        parts.append(line(LEFT, y, width - RIGHT, y, "line"))
        parts.append(label(written(abs(tick)), LEFT - 8, y + 4, "soft", "end"))
    wide = (width - LEFT - RIGHT) / max(1, len(shown))
    gap = min(6.0, wide / 5)
    thick = min(wide - gap, 64.0)
    for n, each in enumerate(shown):
        x = LEFT + n * wide + (wide - thick) / 2
        if each.value:
            tall = max(1.0, each.value * scale)
            parts.append(box(x, zero - tall, thick, tall, "bar", tip=each.tip, rx=1))
        if each.below:
            parts.append(
                box(x, zero, thick, max(1.0, each.below * scale), "minus", tip=each.tip, rx=1)
            )
    if near and limit is not None:
        y = zero - limit * scale
        parts.append(line(LEFT, y, width - RIGHT, y, "mark", stroke_dasharray="6 4"))
    return joined(parts)


def nice_step(most: float) -> float:
    """Return the distance of lines on an axis up to `most`: 1, 2 or 5 times a power of ten.

    >>> nice_step(3), nice_step(47), nice_step(120_000)
    (1.0, 20.0, 50000.0)
    """
    size = 10.0 ** floor(log10(max(most, 1)))
    for factor in (0.2, 0.5, 1, 2, 5):
        step = size * factor
        if step >= 1 and most / step <= 4:
            return step
    return size


_HEIGHT: Final = 140
_STEPS_S: Final = (
    *(1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200),
    *(86400, 2 * 86400, 7 * 86400, 28 * 86400, 91 * 86400, 364 * 86400),
)
_BAR_MIN: Final = 9.5
_LEFT: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPoint:
    """One transaction in the picture.

    Attributes:
        number: Its number.
        time: When it was committed (aware).
        rows_added: Rows of the files that it added.
        rows_removed: Rows of the files that it removed, but for those that it added again.
    """

    number: int
    time: datetime
    rows_added: int
    rows_removed: int


def history_picture(
    points: Sequence[HistoryPoint], *, title: str = "History", width: int = WIDE
) -> Svg:
    """Return a picture of transactions over time. A bar stands for all of one span of time.

    Args:
        points: The transactions, in any order.
        title: Its heading.
        width: In pixels.
    """
    if not points:
        words = "no transaction yet"
        above, top = heading(title, words, left=_LEFT, width=width)
        return Svg(above, width=width, height=top, title=title, description=words)
    known = sorted(points, key=lambda point: point.number)
    first, last = min(p.time for p in known), max(p.time for p in known)
    step = _step(last - first, (width - LEFT - RIGHT) / _BAR_MIN)
    spans = _spans(known, first, step)
    summary = (
        f"transactions {known[0].number:,} to {known[-1].number:,}, {time_text(first)} to "
        f"{time_text(last)}; {compact(sum(p.rows_added for p in known))} rows added, "
        f"{compact(sum(p.rows_removed for p in known))} removed; a bar is {_span_text(step)}"
    )
    moved = [
        Bar(
            value=sum(p.rows_added for p in span),
            below=sum(p.rows_removed for p in span),
            tip=_tip(span),
        )
        for span in spans
    ]
    counts = [Bar(value=len(span), tip=_tip(span)) for span in spans]
    above, top = heading(title, summary, left=_LEFT, width=width)
    moved_y, counts_y = top + 20, top + _HEIGHT + 76
    drawn = partial(bars, height=_HEIGHT, width=width)
    below = counts_y + _HEIGHT + 36
    body = joined(
        [
            above,
            drawn("Rows added; removed below", moved, top=moved_y),
            drawn("Transactions", counts, top=counts_y),
            *_times(first, first + step * len(spans), below, width),
        ]
    )
    return Svg(body, width=width, height=below + 16, title=title, description=summary + ".")


def _step(whole: timedelta, bars_max: float) -> timedelta:
    for seconds in _STEPS_S:
        if whole.total_seconds() / seconds < bars_max:
            return timedelta(seconds=seconds)
    return whole / (bars_max - 1)


def _spans(
    points: Sequence[HistoryPoint], first: datetime, step: timedelta
) -> list[list[HistoryPoint]]:
    last = max(point.time for point in points)
    spans: list[list[HistoryPoint]] = [[] for _ in range((last - first) // step + 1)]
    for point in points:
        spans[(point.time - first) // step].append(point)
    return spans


def _tip(span: Sequence[HistoryPoint]) -> str:
    if not span:
        return ""
    numbers = f"{span[0].number:,}"
    if len(span) > 1:
        numbers += f" to {span[-1].number:,}"
    added, removed = (sum(p.rows_added for p in span), sum(p.rows_removed for p in span))
    text = f"{time_text(span[0].time)}: {counted(len(span), 'transaction')} ({numbers})"
    return f"{text}, {counted(added, 'row')} added, {removed:,} removed"


def _span_text(step: timedelta) -> str:
    seconds = round(step.total_seconds())
    for size, name in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds % size == 0:
            return counted(seconds // size, name)
    return counted(seconds, "second")


def _times(first: datetime, last: datetime, y: float, width: int) -> list[Markup]:
    form = "%Y-%m-%d" if last - first > timedelta(days=4) else "%m-%d %H:%M:%S"
    middle = first + (last - first) / 2
    if width < WIDE:
        return [
            label(first.strftime(form), LEFT, y, "soft"),
            label(last.strftime(form), width - RIGHT, y, "soft", "end"),
        ]
    return [
        label(first.strftime(form), LEFT, y, "soft"),
        label(middle.strftime(form), (LEFT + width - RIGHT) / 2, y, "soft", "middle"),
        label(last.strftime(form), width - RIGHT, y, "soft", "end"),
    ]


# ---------------------------------------------------------------- files picture
#
# Draws how many files and rows each leaf has, in key order.

_FILES_HEIGHT: Final = 150


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
    files_y, rows_y = top + 20, top + _FILES_HEIGHT + 76
    drawn = partial(bars, height=_FILES_HEIGHT, width=width)
    below = rows_y + _FILES_HEIGHT + 40
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
