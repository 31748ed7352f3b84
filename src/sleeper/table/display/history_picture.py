"""Draws the transactions of a table over time, and the rows that they added and removed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from sleeper.language.value_classes import dataclass
from sleeper.table.display.amounts import compact, counted, time_text
from sleeper.table.display.bars import LEFT, RIGHT, WIDTH, Bar, bars
from sleeper.table.display.markup import Markup, joined
from sleeper.table.display.svg import Svg, label

_HEIGHT: Final = 140
_STEPS_S: Final = (
    *(1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200),
    *(86400, 2 * 86400, 7 * 86400, 28 * 86400, 91 * 86400, 364 * 86400),
)
_BARS_MAX: Final = 90


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


def history_picture(points: Sequence[HistoryPoint], *, title: str = "History") -> Svg:
    """Return a picture of transactions over time. A bar stands for all of one span of time.

    Args:
        points: The transactions, in any order.
        title: Its heading.
    """
    heading = label(title, LEFT, 26, "title")
    if not points:
        words = "no transaction yet"
        body = joined([heading, label(words, LEFT, 46, "soft")])
        return Svg(body, width=WIDTH, height=64, title=title, description=words)
    known = sorted(points, key=lambda point: point.number)
    first, last = min(p.time for p in known), max(p.time for p in known)
    step = _step(last - first)
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
    body = joined(
        [
            heading,
            label(summary, LEFT, 46, "soft"),
            bars("Rows added, and removed below", moved, top=80, height=_HEIGHT),
            bars("Transactions", counts, top=280, height=_HEIGHT),
            *_times(first, first + step * len(spans), 456),
        ]
    )
    return Svg(body, width=WIDTH, height=476, title=title, description=summary + ".")


def _step(whole: timedelta) -> timedelta:
    for seconds in _STEPS_S:
        if whole.total_seconds() / seconds < _BARS_MAX:
            return timedelta(seconds=seconds)
    return whole / (_BARS_MAX - 1)


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


def _times(first: datetime, last: datetime, y: float) -> list[Markup]:
    form = "%Y-%m-%d" if last - first > timedelta(days=4) else "%m-%d %H:%M:%S"
    middle = first + (last - first) / 2
    return [
        label(first.strftime(form), LEFT, y, "soft"),
        label(middle.strftime(form), (LEFT + WIDTH - RIGHT) / 2, y, "soft", "middle"),
        label(last.strftime(form), WIDTH - RIGHT, y, "soft", "end"),
    ]
