"""Converts conditions on columns into regions of row keys.

A caller that has conditions (a SQL parser, a DataFrame library) reads only the regions that can
contain matching rows, and evaluates the conditions on every row again. So a condition that is not
on a row key, or that cannot be converted, is ignored here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from sleeper.errors import QueryInvalid
from sleeper.language.value_classes import dataclass
from sleeper.model.ranges import Range, Region, canonical_range, exact_range
from sleeper.model.schema import Field, Schema

_REGIONS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class KeyCondition:
    """A comparison of one column with a constant.

    Attributes:
        column: The column's name.
        operator: The comparison, as SQL writes it.
        value: The constant; for `in` an iterable of them.
    """

    column: str
    operator: Literal["=", "<", "<=", ">", ">=", "in"]
    value: Any


def narrowed_regions(
    regions: Sequence[Region], conditions: Iterable[KeyCondition], schema: Schema
) -> list[Region]:
    """Return the parts of `regions` that contain every row that meets all conditions.

    Args:
        regions: The regions to read without the conditions.
        conditions: Conditions that a row must meet, all of them.
        schema: The table's.
    """
    found = [*regions]
    for condition in conditions:
        if condition.column not in schema.row_key_names:
            continue
        dimension = schema.row_key_names.index(condition.column)
        ranges = _ranges(condition, schema.row_keys[dimension])
        if ranges is not None and len(ranges) * len(found) <= _REGIONS_MAX:
            found = _intersected(found, dimension, ranges)
    return found


def _ranges(condition: KeyCondition, field: Field) -> list[Range] | None:
    """Return the values of a field that meet a condition; None if that is not known."""
    value = condition.value
    try:
        match condition.operator:
            case "=":
                return [exact_range(field, value)]
            case "in":
                present = {each for each in value if each is not None}  # keys are never null
                return [exact_range(field, each) for each in sorted(present)]
            case ">":
                return [canonical_range(field, value, min_inclusive=False)]
            case ">=":
                return [canonical_range(field, value)]
            case "<":
                return [canonical_range(field, high=value)]
            case "<=":
                return [canonical_range(field, high=value, max_inclusive=True)]
    except (QueryInvalid, TypeError):  # not a value of this field: the caller checks it
        return None


def _intersected(
    regions: Sequence[Region], dimension: int, ranges: Sequence[Range]
) -> list[Region]:
    both = (
        (region, region.ranges[dimension].intersection(allowed))
        for region in regions
        for allowed in ranges
    )
    return [region.with_range(dimension, shared) for region, shared in both if shared is not None]
