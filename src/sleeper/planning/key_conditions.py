"""Conditions on columns, analysed into regions of row keys.

Whoever has conditions (a SQL parser, a DataFrame library) reads only the regions that can hold
rows that fulfil them all, and checks every row again. So a condition that is not on a row key, or
that cannot be analysed, may be left out: it changes nothing here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sleeper.errors import QueryInvalid
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
    """Return the regions that hold every row of `regions` that fulfils all conditions.

    Args:
        regions: What is read without the conditions.
        conditions: All of them must hold.
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
    """Return the values of a field that fulfil a condition; None when that is not known."""
    value = condition.value
    try:
        match condition.operator:
            case "=":
                return [exact_range(field, value)]
            case "in":
                present = {each for each in value if each is not None}  # no key is null
                return [exact_range(field, each) for each in sorted(present)]
            case ">":
                return [canonical_range(field, value, min_inclusive=False)]
            case ">=":
                return [canonical_range(field, value)]
            case "<":
                return [canonical_range(field, high=value)]
            case "<=":
                return [canonical_range(field, high=value, max_inclusive=True)]
    except (QueryInvalid, TypeError):  # not a value of this field: whoever asks knows its meaning
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
