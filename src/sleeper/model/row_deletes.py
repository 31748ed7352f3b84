"""Deletions of rows: regions of keys whose rows are hidden in files of before the deletion."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sleeper.model.keys import Key
from sleeper.model.ranges import Range, Region

REGIONS_MAX: Final = 1_000
"""The most regions of one deletion, and of all that files of a table still have to obey."""


@dataclass(frozen=True, slots=True)
class RowDelete:
    """A deletion of rows.

    Attributes:
        number: The transaction that made it. It applies to files with a lower `sequence`.
        regions: The rows inside any of these are deleted.
    """

    number: int
    regions: tuple[Region, ...]
    _ordered: tuple[Region, ...] = field(init=False, repr=False, compare=False)
    _lows: tuple[Any, ...] = field(init=False, repr=False, compare=False)
    _reaches: tuple[Any, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ordered = sorted(self.regions, key=lambda region: region.ranges[0].min)
        reaches = list[Any]()  # the greatest limit so far; None without one
        for high in (region.ranges[0].max for region in ordered):
            before = reaches[-1] if reaches else high
            reaches.append(None if before is None or high is None else max(before, high))
        object.__setattr__(self, "_ordered", tuple(ordered))
        object.__setattr__(self, "_lows", tuple(each.ranges[0].min for each in ordered))
        object.__setattr__(self, "_reaches", tuple(reaches))

    def hides(self, key: Key) -> bool:
        """Return whether rows of a key are deleted from the files that it applies to."""
        place = bisect_right(self._lows, key[0])
        while place and ((reach := self._reaches[place - 1]) is None or key[0] < reach):
            place -= 1
            if key in self._ordered[place]:
                return True
        return False

    def applies_to(self, sequence: int | None) -> bool:
        """Return whether it applies to a file with this `sequence`, which old files lack."""
        return sequence is None or sequence < self.number


def regions_without(regions: Sequence[Region], holes: Iterable[Region]) -> tuple[Region, ...]:
    """Return regions of the keys that are inside `regions` and in none of `holes`.

    >>> regions_without([Region((Range(0, 9),))], [Region((Range(3, 4),))])
    (Region(ranges=(Range(min=0, max=3),)), Region(ranges=(Range(min=4, max=9),)))
    """
    done, left = list[Region](), [*regions]
    for hole in sorted(holes, key=lambda each: each.ranges[0].min):
        ahead, low = list[Region](), hole.ranges[0].min
        for region in left:
            high = region.ranges[0].max
            is_below = high is not None and high <= low  # and so below all holes to come
            (done if is_below else ahead).append(region)
        left = [part for region in ahead for part in _without(region, hole)]
    return (*done, *left)


def _without(region: Region, hole: Region) -> list[Region]:
    """Return the parts of a region beside a hole: one below and one above it in each field."""
    if not region.overlaps(hole):
        return [region]
    parts, inside = [], region
    for dimension, cut in enumerate(hole.ranges):
        whole = inside.ranges[dimension]
        if whole.min < cut.min:
            parts.append(inside.with_range(dimension, Range(whole.min, cut.min)))
        if cut.max is not None and (whole.max is None or cut.max < whole.max):
            parts.append(inside.with_range(dimension, Range(cut.max, whole.max)))
        both = whole.intersection(cut)
        assert both is not None
        inside = inside.with_range(dimension, both)
    return parts
