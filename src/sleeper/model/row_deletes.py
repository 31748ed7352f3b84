"""Deletions of rows: keys whose rows are hidden in files of before the deletion.

The keys are those inside of regions, or those that the rows of new files have.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sleeper.model.keys import Key
from sleeper.model.ranges import Range, Region

REGIONS_MAX: Final = 1_000
"""The most regions of one deletion, and of all that files of a table still have to obey."""


@dataclass(frozen=True, slots=True)
class KeyFile:
    """A data file whose row keys are deleted from older files.

    Attributes:
        filename: The file. It stays as long as the deletion, though the table may have replaced it.
        row_count: Its rows.
    """

    filename: str
    row_count: int


@dataclass(frozen=True, slots=True)
class RowDelete:
    """A deletion of rows.

    Attributes:
        number: The transaction that made it. It applies to files with a lower `sequence`.
        regions: The rows inside any of these are deleted.
        key_files: Or else the rows are deleted that have a row key of one of these files: of those
            of a partition in the files of it, and of the partitions above and below it.
    """

    number: int
    regions: tuple[Region, ...] = ()
    key_files: Mapping[str, tuple[KeyFile, ...]] = field(default_factory=dict)
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
        """Return whether a key, whose rows it deletes, is inside one of its regions."""
        place = bisect_right(self._lows, key[0])
        while place and ((reach := self._reaches[place - 1]) is None or key[0] < reach):
            place -= 1
            if key in self._ordered[place]:
                return True
        return False

    def key_files_of(self, partition_ids: Iterable[str]) -> Iterator[KeyFile]:
        """Yield the files that may have keys of a leaf, by the ids of it and its ancestors."""
        for partition_id in partition_ids if self.key_files else ():
            yield from self.key_files.get(partition_id, ())

    def applies_to(self, sequence: int | None) -> bool:
        """Return whether it applies to a file with this `sequence`, which old files lack."""
        return sequence is None or sequence < self.number


def regions_without(regions: Sequence[Region], holes: Iterable[Region]) -> tuple[Region, ...]:
    """Return regions of the keys that are inside `regions` and in none of `holes`.

    >>> regions_without([Region((Range(0, 9),))], [Region((Range(3, 4),))])
    (Region(ranges=(Range(min=0, max=3),)), Region(ranges=(Range(min=4, max=9),)))
    """
    if all(len(region.ranges) == 1 for region in regions):
        cuts = _joined(hole.ranges[0] for hole in holes)
        return tuple(Region((side,)) for each in regions for side in _gaps(each.ranges[0], cuts))
    done, left = list[Region](), [*regions]
    for hole in sorted(holes, key=lambda each: each.ranges[0].min):
        ahead, low = list[Region](), hole.ranges[0].min
        for region in left:
            high = region.ranges[0].max
            is_below = high is not None and high <= low  # and so below all holes to come
            (done if is_below else ahead).append(region)
        left = [part for region in ahead for part in _without(region, hole)]
    return (*done, *left)


def _joined(ranges: Iterable[Range]) -> list[Range]:
    """Return ranges with the same values, ascending, of which no two overlap or meet."""
    found: list[Range] = []
    for each in sorted((each for each in ranges if not each.is_empty), key=lambda each: each.min):
        last = found[-1] if found else None
        if last is None or (last.max is not None and last.max < each.min):
            found.append(each)
        elif last.max is not None and (each.max is None or last.max < each.max):
            found[-1] = Range(last.min, each.max)
    return found


def _gaps(whole: Range, cuts: Sequence[Range]) -> Iterator[Range]:
    """Yield the parts of a range that are in none of `_joined` ranges."""
    low, high = whole.min, whole.max
    first = bisect_right(cuts, low, key=lambda each: each.min)
    for cut in cuts[max(0, first - 1) :]:
        if high is not None and high <= cut.min:
            break
        if low < cut.min:
            yield Range(low, cut.min)
        if cut.max is None:
            return
        low = max(low, cut.max)
    if high is None or low < high:
        yield Range(low, high)


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
