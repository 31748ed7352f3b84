"""Finds how far a read must go for its first rows, so that a limited query reads few pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from sleeper.engine.scan.few_rows import key_limits, places_between
from sleeper.engine.scan.read_windows import key_value
from sleeper.lookup.parquet.file_end import ReadRanges
from sleeper.lookup.parquet_index import ParquetIndex
from sleeper.lookup.reader import LookupReader
from sleeper.model.keys import key_type
from sleeper.model.ranges import Region, whole_region
from sleeper.model.schema import Schema


def border_after(
    lookup: LookupReader,
    regions_by_file: Mapping[str, Sequence[Region]],
    rows: int,
    schema: Schema,
    arrow_schema: pa.Schema,
) -> Any | None:
    """Return a value of the first row key below which about `rows` rows of some files are.

    There may be fewer rows below it, where keys repeat or regions leave rows out, so a reader must
    be able to go on. Only page indexes are read, of as few row groups as have so many rows.

    Args:
        lookup: Reads the files.
        regions_by_file: The regions of each file; no regions mean all rows.
        rows: How many rows are wanted.
        schema: The table's schema.
        arrow_schema: The same as Arrow's.

    Returns:
        The value; None if no file has so many rows, or none is known.

    Raises:
        DataDamaged: a file is missing or damaged.
        StorageFailed: a file cannot be read.
    """
    whole = (whole_region(schema),)
    found = lookup.at_once(
        [
            partial(
                lookup.inspect, name, partial(_bound_after, regions or whole, rows, arrow_schema)
            )
            for name, regions in regions_by_file.items()
        ]
    )
    kind = key_type(schema.row_keys[0])
    values = [key_value(kind, bound) for bound in found if bound is not None]
    return min((value for value in values if value is not None), default=None)


def _bound_after(
    regions: Sequence[Region],
    rows: int,
    arrow_schema: pa.Schema,
    index: ParquetIndex,
    read: ReadRanges,
) -> Any | None:
    """Return the least key of the page after the first pages that have so many rows, or None."""
    leaf = index.columns(arrow_schema)[arrow_schema.names[0]].leaf
    limits = [key_limits(region, arrow_schema.field(0).type) for region in regions]
    before = 0
    for group in places_between(index.group_bounds(leaf), limits).tolist():
        if before >= rows:
            return index.group_bounds(leaf).minimums[group]
        index.load([group], (leaf,), (leaf,), read)
        bounds, firsts = index.bounds(group, leaf), index.locations(group, leaf).first_rows
        for page in places_between(bounds, limits).tolist():
            if before >= rows:
                return bounds.minimums[page]
            before += int(firsts[page + 1] - firsts[page])
    return None
