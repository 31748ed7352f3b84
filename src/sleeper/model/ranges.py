"""Ranges of one row key field, and regions of all of them.

Inside Sleeper every range is canonical, `[min, max)`; a range that includes or
excludes other ends is converted first (rules PRT-1, PRT-2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sleeper.errors import QueryInvalid
from sleeper.model.column_types import key_traits
from sleeper.model.keys import (
    Key,
    after_prefix,
    checked_value,
    key_type,
    next_value,
    smallest_value,
)
from sleeper.model.schema import Field, Schema


@dataclass(frozen=True, slots=True)
class Range:
    """The values from `min` to `max`; `max` is not included, and None means no limit.

    A range whose `min` equals its `max` is empty.

    >>> 5 in Range(1, 5), 1 in Range(1, 5), "z" in Range("", None)
    (False, True, True)
    """

    min: Any
    max: Any

    def __contains__(self, value: Any) -> bool:
        return bool(self.min <= value and (self.max is None or value < self.max))

    @property
    def is_empty(self) -> bool:
        """True when no value is in the range."""
        return self.max is not None and not self.min < self.max

    def overlaps(self, other: Range) -> bool:
        """True when some value could be in both."""
        low = max(self.min, other.min)
        return all(high is None or low < high for high in (self.max, other.max))

    def intersection(self, other: Range) -> Range | None:
        """Return the values in both, or None when there are none (rule PRT-3)."""
        low = max(self.min, other.min)
        highs = [high for high in (self.max, other.max) if high is not None]
        both = Range(low, min(highs) if highs else None)
        return None if both.is_empty else both


@dataclass(frozen=True, slots=True)
class Region:
    """A region of keys: one range for each row key field, in the schema's order.

    A key is inside when each of its values is inside the range of its dimension (rule PRT-4).
    """

    ranges: tuple[Range, ...]

    def __contains__(self, key: Key) -> bool:
        if len(key) != len(self.ranges):
            raise QueryInvalid(f"a key needs {len(self.ranges)} values, not {len(key)}: {key!r}")
        return all(value in key_range for value, key_range in zip(key, self.ranges, strict=True))

    def overlaps(self, other: Region) -> bool:
        """True when some key could be inside both."""
        pairs = zip(self.ranges, other.ranges, strict=True)
        return all(mine.overlaps(theirs) for mine, theirs in pairs)

    def intersection(self, other: Region) -> Region | None:
        """Return the keys in both, or None when there can be none."""
        shared = []
        for mine, theirs in zip(self.ranges, other.ranges, strict=True):
            both = mine.intersection(theirs)
            if both is None:
                return None
            shared.append(both)
        return Region(tuple(shared))

    def with_range(self, dimension: int, key_range: Range) -> Region:
        """Return this region with another range in one dimension."""
        ranges = list(self.ranges)
        ranges[dimension] = key_range
        return Region(tuple(ranges))


def split_range(whole: Range, at: Any) -> tuple[Range, Range]:
    """Split a range in two; the split point becomes the minimum of the upper one.

    >>> split_range(Range("", None), at="m")
    (Range(min='', max='m'), Range(min='m', max=None))

    Raises:
        QueryInvalid: `at` is outside `whole`, or is its minimum (the left half would be empty).
    """
    if at not in whole or at == whole.min:
        raise QueryInvalid(f"split point {at!r} must lie inside {whole}, above its minimum")
    return Range(whole.min, at), Range(at, whole.max)


def canonical_range(
    field: Field,
    low: Any = None,
    high: Any = None,
    *,
    min_inclusive: bool = True,
    max_inclusive: bool = False,
) -> Range:
    """Return the canonical range of a row key field between two limits; None is no limit.

    >>> from sleeper.model.schema import Field, Primitive
    >>> canonical_range(Field("n", Primitive.LONG), 1, 5, max_inclusive=True)
    Range(min=1, max=6)

    Raises:
        QueryInvalid: a limit has the wrong type, or `low` is above `high`.
    """
    kind = key_type(field)
    least = smallest_value(kind) if low is None else checked_value(field, low)
    most = None if high is None else checked_value(field, high)
    if most is not None and least > most:
        raise QueryInvalid(
            f"the range of {field.name!r} has its minimum {low!r} above its maximum {high!r}: "
            "give the smaller one first"
        )
    if low is not None and not min_inclusive:
        following = next_value(kind, least)
        if following is None:  # no value is above the largest value
            return Range(least, least)
        least = following
    if most is not None and max_inclusive:
        most = next_value(kind, most)
    if most is not None and least > most:
        least = most  # both ends are excluded, and are equal or neighbours: the range is empty
    return Range(least, most)


def exact_range(field: Field, value: Any) -> Range:
    """Return the canonical range that contains only `value`.

    Raises:
        QueryInvalid: it is not a value of the field; None is none.
    """
    known = checked_value(field, value)
    return canonical_range(field, known, known, max_inclusive=True)


def prefix_range(field: Field, prefix: object) -> Range:
    """Return the range of a string or bytes field that contains the values with a prefix.

    >>> from sleeper.model.schema import Field, Primitive
    >>> prefix_range(Field("path", Primitive.STRING), "usr/")
    Range(min='usr/', max='usr0')

    Raises:
        QueryInvalid: the field has another type, or the prefix is not of its type.
    """
    if not key_traits(key_type(field)).has_prefixes:
        raise QueryInvalid(
            f"key field {field.name!r} has no prefixes, because it is neither a string nor bytes: "
            f"give its values by range={{{field.name!r}: (min, max)}}"
        )
    start = checked_value(field, prefix)
    return Range(start, after_prefix(start))


def whole_region(schema: Schema) -> Region:
    """Return the region of every key (rule PRT-6)."""
    return Region(tuple(canonical_range(field) for field in schema.row_keys))


def region_of(schema: Schema, ranges: Mapping[str, Range]) -> Region:
    """Return a region from ranges by field name; a field left out may have any value.

    Raises:
        QueryInvalid: a name is not a row key field.
    """
    for name in ranges:
        if name not in schema.row_key_names:
            raise QueryInvalid(
                f'Key "{name}" was not a row key field in the table schema; '
                f"ranges may be given for {', '.join(schema.row_key_names)}"
            )
    return Region(
        tuple(ranges.get(field.name) or canonical_range(field) for field in schema.row_keys)
    )
