"""Converts regions of keys to DataFusion expressions.

A value becomes a literal with its column's exact type, never SQL text. So no value is changed, and
statistics of row groups and pages can be compared with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from sleeper.engine.scan.session import column, datafusion
from sleeper.model.keys import key_type, next_value, smallest_value
from sleeper.model.ranges import Range, Region
from sleeper.model.schema import Field, Schema

REGIONS_MAX = 20
"""Maximum number of regions in one predicate. DataFusion converts a list of equalities to `IN`,
and does not prune for a list of more than 20."""


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
