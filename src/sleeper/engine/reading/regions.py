"""Divides many regions into small chunks, so that each chunk's rows come before the next one's.

The cost of a predicate over hundreds of regions is their number squared, and it prunes badly. Small
predicates that are read one after the other give the same rows in the same order. Where regions
are all but some values, as after deletions by key, they are joined, and a list leaves these out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from sleeper.engine.reading.session import column, datafusion
from sleeper.model.keys import key_type, next_value, smallest_value
from sleeper.model.ranges import Range, Region
from sleeper.model.schema import Field, Schema


def disjoint_regions(regions: Sequence[Region]) -> tuple[Region, ...]:
    """Return regions with the same keys, without empty ones.

    With one row key, ranges that overlap or are adjacent are merged. Regions of several row keys
    are not merged.
    """
    filled = [region for region in regions if not any(side.is_empty for side in region.ranges)]
    if not filled or len(filled[0].ranges) > 1:
        return tuple(dict.fromkeys(filled))
    return tuple(_hull(run) for run in _runs(filled, 0, meeting=True))


def joined_over_gaps(
    regions: Sequence[Region], schema: Schema
) -> tuple[tuple[Region, ...], tuple[Any, ...]]:
    """Join ranges of a single row key between which just one value is missing.

    Args:
        regions: As `disjoint_regions` returns them.
        schema: The table's schema.

    Returns:
        Regions, and the missing values inside of them, both ascending. Regions of several row keys
        are returned as they are.
    """
    if len(regions) < 2 or len(schema.row_keys) > 1:
        return tuple(regions), ()
    kind = key_type(schema.row_keys[0])
    joined, missing = [regions[0].ranges[0]], []
    for region in regions[1:]:
        before, side = joined[-1], region.ranges[0]
        if before.max is not None and next_value(kind, before.max) == side.min:
            missing.append(before.max)
            joined[-1] = Range(before.min, side.max)
        else:
            joined.append(side)
    return tuple(Region((side,)) for side in joined), tuple(missing)


def values_inside(values: tuple[Any, ...], regions: Sequence[Region]) -> tuple[Any, ...]:
    """Return those of ascending values of the single row key that a chunk of regions covers."""
    if not values:
        return values
    side = _hull(regions).ranges[0]
    first = bisect_left(values, side.min)
    return values[first : None if side.max is None else bisect_left(values, side.max)]


def region_chunks(
    regions: Sequence[Region], schema: Schema, regions_max: int
) -> Iterator[list[Region]]:
    """Yield `regions` in chunks of at most `regions_max`, in key order, none interleaving.

    Regions that overlap in the first row key stay together, whatever their number. If all have
    the same single value of it, they are divided by the next row key.
    """
    chunk: list[Region] = []
    for group in _groups(regions, schema.row_keys):
        if chunk and len(chunk) + len(group) > regions_max:
            yield chunk
            chunk = []
        chunk += group
    if chunk:
        yield chunk


def _groups(
    regions: Sequence[Region], fields: tuple[Field, ...], dimension: int = 0
) -> Iterator[list[Region]]:
    """Yield the smallest groups of regions whose rows do not interleave, in key order."""
    for run in _runs(regions, dimension):
        side = run[0].ranges[dimension]
        if (
            len(run) > 1
            and dimension + 1 < len(fields)
            and all(region.ranges[dimension] == side for region in run)
            and side.max is not None
            and side.max == next_value(key_type(fields[dimension]), side.min)
        ):
            yield from _groups(run, fields, dimension + 1)
        else:
            yield run


def _runs(
    regions: Sequence[Region], dimension: int, *, meeting: bool = False
) -> Iterator[list[Region]]:
    """Yield groups of regions that overlap in one dimension, directly or through others.

    With `meeting`, adjacent regions are grouped too.
    """
    run: list[Region] = []
    high: Any = None
    for region in sorted(regions, key=lambda region: region.ranges[dimension].min):
        side = region.ranges[dimension]
        if run and high is not None and (high < side.min or (high == side.min and not meeting)):
            yield run
            run = []
        high = _larger_max(high, side.max) if run else side.max
        run.append(region)
    if run:
        yield run


def _hull(run: Sequence[Region]) -> Region:
    """Return the range that covers ranges of a single row key."""
    if len(run) == 1:
        return run[0]
    high = run[0].ranges[0].max
    for region in run[1:]:
        high = _larger_max(high, region.ranges[0].max)
    return Region((Range(run[0].ranges[0].min, high),))


def _larger_max(one: Any, other: Any) -> Any:
    return None if one is None or other is None else max(one, other)


# ---------------------------------------------------------------- predicates
#
# Converts regions of keys to DataFusion expressions.
#
# A value becomes a literal with its column's exact type, never SQL text. So no value is changed,
# and statistics of row groups and pages can be compared with it.

PREDICATE_REGIONS_MAX = 20
"""Maximum number of regions in one predicate. DataFusion converts a list of equalities to `IN`,
and does not prune for a list of more than 20."""


def slice_predicate(
    regions: Sequence[Region], without: Sequence[Any], schema: Schema, arrow_schema: pa.Schema
) -> Any | None:
    """Return the expression that is true for keys inside any of `regions`, but for some values.

    None means no condition: every key meets it.

    Args:
        regions: The regions; none for all keys.
        without: Values of the single row key.
        schema: The table's schema.
        arrow_schema: The same as an Arrow schema.
    """
    inside = regions_predicate(regions, schema, arrow_schema)
    if not without:
        return inside
    name = schema.row_keys[0].name
    kind = arrow_schema.field(name).type
    others = datafusion().functions.in_list(
        column(name), [_literal(value, kind) for value in without], negated=True
    )
    return others if inside is None else inside & others


def regions_predicate(
    regions: Sequence[Region], schema: Schema, arrow_schema: pa.Schema
) -> Any | None:
    """Return the expression that is true for keys inside any of `regions`.

    None means no condition: some region contains every key.
    """
    boxes = []
    for region in regions:
        box = _region_predicate(region, schema, arrow_schema)
        if box is None:
            return None
        boxes.append(box)
    while len(boxes) > 1:  # a balanced tree: the planner recurses over it
        pairs = zip(boxes[::2], boxes[1::2], strict=False)
        odd_one = boxes[-1:] if len(boxes) % 2 else []
        boxes = [left | right for left, right in pairs] + odd_one
    return boxes[0] if boxes else None


def _region_predicate(region: Region, schema: Schema, arrow_schema: pa.Schema) -> Any | None:
    conditions = [
        condition
        for field, key_range in zip(schema.row_keys, region.ranges, strict=True)
        for condition in _range_conditions(field, key_range, arrow_schema.field(field.name).type)
    ]
    if not conditions:
        return None
    whole = conditions[0]
    for condition in conditions[1:]:
        whole &= condition
    return whole


def _range_conditions(field: Field, key_range: Range, arrow_type: pa.DataType) -> list[Any]:
    """Return at most two conditions; an end that excludes nothing needs none."""
    key, kind = column(field.name), key_type(field)
    if key_range.max is not None and key_range.max == next_value(kind, key_range.min):
        return [key == _literal(key_range.min, arrow_type)]
    conditions = []
    if key_range.min != smallest_value(kind):
        conditions.append(key >= _literal(key_range.min, arrow_type))
    if key_range.max is not None:
        conditions.append(key < _literal(key_range.max, arrow_type))
    return conditions


def _literal(value: Any, arrow_type: pa.DataType) -> Any:
    return datafusion().lit(pa.scalar(value, arrow_type))


# ---------------------------------------------------------------- row groups
#
# Concatenates small batches, for formats that store each batch separately.


def row_groups(batches: Iterable[pa.RecordBatch], row_count: int) -> Iterator[pa.Table]:
    """Yield tables of at least `row_count` rows, except the last; nothing is copied."""
    waiting: list[pa.RecordBatch] = []
    waiting_rows = 0
    for batch in batches:
        waiting.append(batch)
        waiting_rows += batch.num_rows
        if waiting_rows >= row_count:
            yield pa.Table.from_batches(waiting)
            waiting, waiting_rows = [], 0
    if waiting_rows:
        yield pa.Table.from_batches(waiting)
