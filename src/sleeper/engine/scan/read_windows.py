"""Divides a long read by key, so that its pages are checked shortly before they are read.

All pages of a window are checked before it is read. The first windows are small, so that the first
rows are returned soon; later ones are large, because each window needs a plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

from sleeper.engine.scan.verified_pages import UncheckedPages
from sleeper.model.keys import key_type, smallest_value
from sleeper.model.ranges import Range, Region, whole_region
from sleeper.model.schema import Primitive, Schema

FIRST_BYTES = 16 << 20
LAST_BYTES = 512 << 20
"""Bytes of unchecked pages in a window: the first number in the first one, and twice as many in
each next one, up to the second number."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read_windows(unchecked: Sequence[UncheckedPages], schema: Schema) -> list[Range]:
    """Return ranges of the first row key, in order, that together contain every key.

    Args:
        unchecked: The unchecked pages of the whole read, file by file.
        schema: The table's schema.
    """
    kind = key_type(schema.row_keys[0])
    row_groups = [
        (minimum, size)
        for each in unchecked
        for minimum, size in zip(each.group_minimums, each.group_bytes, strict=True)
    ]
    low, windows = smallest_value(kind), []
    wanted, size = FIRST_BYTES, 0
    for minimum, group_bytes in sorted(row_groups):
        if size and size + group_bytes > wanted:
            border = key_value(kind, minimum)
            if border is not None and low < border:
                windows.append(Range(low, border))
                low, size, wanted = border, 0, min(2 * wanted, LAST_BYTES)
        size += group_bytes
    return [*windows, Range(low, None)]


def cut_regions(regions: Sequence[Region], window: Range, schema: Schema) -> tuple[Region, ...]:
    """Return the parts of some regions, or of all rows if there are none, inside a window."""
    cut = []
    for region in regions or (whole_region(schema),):
        both = region.ranges[0].intersection(window)
        if both is not None:
            cut.append(region.with_range(0, both))
    return tuple(cut)


def key_value(kind: Primitive, bound: Any) -> Any | None:
    """Return a bound of pages as a value of the first row key; None if there is no such value.

    A bound may be truncated, so the value may be a little less.
    """
    match kind:
        case Primitive.STRING:
            return bytes(bound).decode(errors="ignore")
        case Primitive.BYTES:
            return bytes(bound)
        case Primitive.INT | Primitive.LONG:
            return int(bound)
    try:
        if kind is Primitive.DATE:
            return date(1970, 1, 1) + timedelta(days=int(bound))
        zone = smallest_value(kind).tzinfo
        return _EPOCH.replace(tzinfo=zone) + timedelta(microseconds=int(bound))
    except OverflowError:
        return None
