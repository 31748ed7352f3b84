"""Counts the pages of a file that a read of regions looks at, of those that there are."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from sleeper.engine.scan.few_rows import key_limits, places_between
from sleeper.lookup.parquet.file_end import ReadRanges
from sleeper.lookup.parquet_index import ParquetIndex
from sleeper.lookup.reader import LookupReader
from sleeper.model.ranges import Region


def chosen_pages(
    lookup: LookupReader, filename: str, regions: Sequence[Region], arrow_schema: pa.Schema
) -> tuple[int, int]:
    """Return how many pages of the first row key may have keys of regions, and how many there are.

    Args:
        lookup: Reads the file's index.
        filename: The file.
        regions: The regions.
        arrow_schema: The table's columns.

    Raises:
        DataDamaged: the file is missing or damaged.
    """
    kind = arrow_schema.field(0).type
    limits = [key_limits(region, kind) for region in regions]

    def count(index: ParquetIndex, read: ReadRanges) -> tuple[int, int]:
        leaf = index.columns(arrow_schema)[arrow_schema.names[0]].leaf
        groups = [group for group, rows in enumerate(index.footer.row_counts) if rows]
        index.load(groups, (leaf,), (leaf,), read)
        bounds = [index.bounds(group, leaf) for group in groups]
        chosen = sum(len(places_between(each, limits)) for each in bounds)
        return chosen, sum(len(each.minimums) for each in bounds)

    return lookup.inspect(filename, count)
