"""Draws the transactions of a table over time, and the rows that they added and removed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from sleeper.language.value_classes import dataclass
from sleeper.pictures.amounts import compact, counted, time_text
from sleeper.pictures.bars import LEFT, RIGHT, Bar, bars
from sleeper.pictures.markup import Markup, joined
from sleeper.pictures.svg import WIDE, Svg, heading, label

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
