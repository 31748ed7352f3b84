"""Draws rows of bars: an axis, a bar for each value or group of values, and a limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, floor, log10
from typing import Final

from sleeper.language.value_classes import dataclass
from sleeper.pictures.amounts import compact
from sleeper.pictures.markup import Markup, joined
from sleeper.pictures.svg import WIDE, box, label, line

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
