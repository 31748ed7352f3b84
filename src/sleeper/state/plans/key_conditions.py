"""Converts conditions on columns into regions of row keys.

A caller that has conditions (a SQL parser, a DataFrame library) reads only the regions that can
contain matching rows, and evaluates the conditions on every row again. So a condition that is not
on a row key, or that cannot be converted, narrows nothing here: the regions may be too large, and
are never too small.

Row keys are never null, so a condition on them is true or false. A condition on a value may be
neither (a null), and a row is returned only if the whole condition is true; that is why a negation
is converted down to single comparisons, and never taken as "the other regions".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from sleeper.errors import QueryInvalid
from sleeper.model.ranges import (
    Range,
    Region,
    canonical_range,
    exact_range,
    prefix_range,
)
from sleeper.model.schema import Field, Schema

Operator = Literal["=", "!=", "<", "<=", ">", ">=", "in", "not in", "prefix", "not prefix"]

_REGIONS_MAX: Final = 10_000

_EXCLUDING: Final = ("!=", "not in", "not prefix")

_NEGATED: Final[dict[Operator, Operator]] = {
    "=": "!=",
    "!=": "=",
    "<": ">=",
    ">=": "<",
    ">": "<=",
    "<=": ">",
    "in": "not in",
    "not in": "in",
    "prefix": "not prefix",
    "not prefix": "prefix",
}


@dataclass(frozen=True, slots=True)
class KeyCondition:
    """A comparison of one column with a constant.

    Attributes:
        column: The column's name.
        operator: The comparison, as SQL writes it; `prefix` is true of values that start with
            the constant.
        value: The constant; for `in` and `not in` an iterable of them.
    """

    column: str
    operator: Operator
    value: Any


@dataclass(frozen=True, slots=True)
class AllOf:
    """Conditions that are all true: AND."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Conditions of which one is true at least: OR."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Negation:
    """A condition that is false: NOT."""

    part: Condition


@dataclass(frozen=True, slots=True)
class Unknown:
    """A condition that says nothing about row keys, or that cannot be converted."""


@dataclass(frozen=True, slots=True)
class Implication:
    """A condition of which only what follows from it is known, such as LIKE 'a%b' and 'a%'.

    It narrows as `part` does; its negation narrows nothing.
    """

    part: Condition


Condition = KeyCondition | AllOf | AnyOf | Negation | Unknown | Implication

UNKNOWN: Final = Unknown()


@dataclass(frozen=True, slots=True)
class NarrowedRegions:
    """The regions that contain every row that meets a condition.

    Attributes:
        regions: The regions. They may overlap.
        is_exact: True if every row in the regions meets the condition, so that it needs no
            evaluation.
    """

    regions: Sequence[Region]
    is_exact: bool


def narrow(regions: Sequence[Region], condition: Condition, schema: Schema) -> NarrowedRegions:
    """Return the parts of `regions` that contain every row that meets a condition.

    Args:
        regions: The regions to read without the condition.
        condition: A row that does not meet it is not needed.
        schema: The table's.
    """
    try:
        return _narrow(regions, condition, schema)
    except RecursionError:  # hundreds of conditions, each inside the one before
        return NarrowedRegions(regions, is_exact=False)


def _narrow(regions: Sequence[Region], condition: Condition, schema: Schema) -> NarrowedRegions:
    match condition:
        case KeyCondition():
            return _by_comparison(regions, condition, schema)
        case AllOf(parts):
            found = NarrowedRegions(regions, is_exact=True)
            for part in parts:
                narrower = _narrow(found.regions, part, schema)
                is_exact = found.is_exact and narrower.is_exact
                found = NarrowedRegions(narrower.regions, is_exact)
            return found
        case AnyOf(parts):
            return _by_any(regions, parts, schema)
        case Negation(part):
            return _narrow(regions, _negated(part), schema)
        case Implication(part):
            return NarrowedRegions(_narrow(regions, part, schema).regions, is_exact=False)
        case Unknown():
            return NarrowedRegions(regions, is_exact=False)


def single_keys(regions: Sequence[Region], schema: Schema) -> list[tuple[Any, ...]] | None:
    """Return the row keys of regions that contain one key each; None if a region has more."""
    keys = []
    for region in regions:
        key = tuple(each.min for each in region.ranges)
        for field, each in zip(schema.row_keys, region.ranges, strict=True):
            if each.max is None or each != exact_range(field, each.min):
                return None
        keys.append(key)
    return keys


def _by_comparison(
    regions: Sequence[Region], condition: KeyCondition, schema: Schema
) -> NarrowedRegions:
    if condition.column not in schema.row_key_names:
        return NarrowedRegions(regions, is_exact=False)
    dimension = schema.row_key_names.index(condition.column)
    ranges = _ranges(condition, schema.row_keys[dimension])
    if ranges is None or len(ranges) * len(regions) > _REGIONS_MAX:
        return NarrowedRegions(regions, is_exact=False)
    return NarrowedRegions(_intersected(regions, dimension, ranges), is_exact=True)


def _by_any(
    regions: Sequence[Region], parts: Sequence[Condition], schema: Schema
) -> NarrowedRegions:
    """Return the regions that any of several conditions leaves: one that narrows nothing wins."""
    found: dict[Region, None] = {}
    is_exact = True
    for part in parts:
        narrower = _narrow(regions, part, schema)
        if narrower.regions == regions and not narrower.is_exact:
            return narrower
        found.update(dict.fromkeys(narrower.regions))
        is_exact = is_exact and narrower.is_exact
        if len(found) > _REGIONS_MAX:
            return NarrowedRegions(regions, is_exact=False)
    return NarrowedRegions([*found], is_exact)


def _negated(condition: Condition) -> Condition:
    """Return the condition that is true where this one is false; where it is null, neither is."""
    match condition:
        case KeyCondition(operator=operator):
            return replace(condition, operator=_NEGATED[operator])
        case AllOf(parts):
            return AnyOf(tuple(_negated(part) for part in parts))
        case AnyOf(parts):
            return AllOf(tuple(_negated(part) for part in parts))
        case Negation(part):
            return part
        case Implication() | Unknown():
            return UNKNOWN


def _ranges(condition: KeyCondition, field: Field) -> list[Range] | None:
    """Return the values of a field that meet a condition; None if that is not known."""
    operator, value = condition.operator, condition.value
    try:
        if operator in _EXCLUDING:
            # A null in a list that excludes: the condition is true of nothing, and left as it is.
            if operator == "not in" and None in (value := [*value]):
                return None
            return _all_but(field, _matching(_NEGATED[operator], value, field))
        return _matching(operator, value, field)
    except (QueryInvalid, TypeError):  # not a value of this field: the caller checks it
        return None


def _matching(operator: Operator, value: Any, field: Field) -> list[Range]:
    match operator:
        case "=":
            return [exact_range(field, value)]
        case "in":
            present = {each for each in value if each is not None}  # keys are never null
            return [exact_range(field, each) for each in sorted(present)]
        case "prefix":
            return [prefix_range(field, value)]
        case ">" | ">=":
            return [canonical_range(field, value, min_inclusive=operator == ">=")]
        case _:
            return [canonical_range(field, high=value, max_inclusive=operator == "<=")]


def _all_but(field: Field, ranges: Sequence[Range]) -> list[Range]:
    """Return the values of a field outside ranges, which are sorted and do not overlap."""
    low: Any = canonical_range(field).min
    found = []
    for each in ranges:
        found.append(Range(low, each.min))
        if each.max is None:
            return [between for between in found if not between.is_empty]
        low = each.max
    found.append(Range(low, None))
    return [between for between in found if not between.is_empty]


def _intersected(
    regions: Sequence[Region], dimension: int, ranges: Sequence[Range]
) -> list[Region]:
    both = (
        (region, region.ranges[dimension].intersection(allowed))
        for region in regions
        for allowed in ranges
    )
    return [region.with_range(dimension, shared) for region, shared in both if shared is not None]
