"""Filters that Spark pushes, as regions of row keys.

Nothing here decides what is right: Spark checks every row again, so a filter that is no
condition on a row key, or a wrong one, may be left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sleeper.errors import QueryInvalid
from sleeper.model.ranges import Range, Region, canonical_range, exact_range
from sleeper.model.schema import Field, Schema

_REGIONS_MAX = 10_000


def narrowed(regions: Sequence[Region], filters: Iterable[Any], schema: Schema) -> list[Region]:
    """Return the regions that hold every row of `regions` that all filters let through.

    Args:
        regions: What is read without the filters.
        filters: Of `pyspark.sql.datasource`: all of them must hold. Known by the names of their
            classes, which Spark 4.0 does not have.
        schema: The table's.
    """
    found = [*regions]
    for condition in filters:
        dimension = _dimension(condition, schema)
        if dimension is None:
            continue
        ranges = _ranges(condition, schema.row_keys[dimension])
        if ranges is not None and len(ranges) * len(found) <= _REGIONS_MAX:
            found = _intersected(found, dimension, ranges)
    return found


def _dimension(condition: Any, schema: Schema) -> int | None:
    """The place of the row key field that a filter is about."""
    path: tuple[str, ...] = getattr(condition, "attribute", ())
    if len(path) != 1 or path[0] not in schema.row_key_names:
        return None
    return schema.row_key_names.index(path[0])


def _ranges(condition: Any, field: Field) -> list[Range] | None:
    """The values of a field that a filter lets through; None when that is not known."""
    value: Any = getattr(condition, "value", None)
    try:
        match type(condition).__name__:
            case "EqualTo" | "EqualNullSafe":
                return [exact_range(field, value)]
            case "In":
                present = {each for each in value if each is not None}  # no key is null
                return [exact_range(field, each) for each in sorted(present)]
            case "GreaterThan":
                return [canonical_range(field, value, min_inclusive=False)]
            case "GreaterThanOrEqual":
                return [canonical_range(field, value)]
            case "LessThan":
                return [canonical_range(field, high=value)]
            case "LessThanOrEqual":
                return [canonical_range(field, high=value, max_inclusive=True)]
    except (QueryInvalid, TypeError):  # no value of this field: Spark knows what it means
        return None
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
