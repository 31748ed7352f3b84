"""Reads ranges of few rows by the page reader, without an engine.

To set up a plan in DataFusion takes as long as to read some thousand rows. So a range whose pages
have few rows, by the page indexes, is read as keys are: the pages that can have them, once, each
compared with its checksum. Rows of several files are sorted together in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.engine.reading.left_out_keys import NO_KEYS_OUT, KeysOut, LeftOutKeys
from sleeper.engine.reading.verified_pages import key_value
from sleeper.lookup.column_reader import as_ranges
from sleeper.lookup.columns import comparable_array
from sleeper.lookup.key_search import KeyRows, read_rows
from sleeper.lookup.keys import key_bound, one_value
from sleeper.lookup.parquet.file_end import ReadRanges
from sleeper.lookup.parquet.page_index import PageBounds
from sleeper.lookup.parquet_index import ParquetIndex
from sleeper.lookup.reader import LookupReader
from sleeper.lookup.sorted_rows import sort_small
from sleeper.model.keys import key_type, smallest_value
from sleeper.model.ranges import Region, whole_region
from sleeper.model.schema import Schema

T = TypeVar("T")

FEW_ROWS = 16_384
FEW_BYTES = 4 << 20
"""Rows of the pages of a range, and their compressed bytes, in all files: no more are read here.
The pages of a short range in twelve files have about so many rows (decision 0106)."""

FEW_FILES = 8
MANY_ROWS_TIMES = 32
MANY_BYTES_TIMES = 8
"""That is of so many files. Of twice as many files twice as much is read here, and so on up to so
many times: a plan over a file costs DataFusion as much as some thousand rows here."""

FEW_REGIONS_MAX = 4
FILES_MAX = 1_000
"""Regions and files of one range; with more, to look through them takes longer than a plan."""

REMOTE_ROWS = 65_536
REMOTE_FILES_MAX = 96
"""The same in a bucket. There DataFusion asks for each file's head once or twice, and reads the
file's pages by requests one after the other."""


def files_max(lookup: LookupReader) -> int:
    """Return of how many files a range may be read here."""
    return REMOTE_FILES_MAX if lookup.is_remote else FILES_MAX


def read_few_rows(
    lookup: LookupReader,
    regions_by_file: Mapping[str, Sequence[Region]],
    columns: Sequence[str],
    schema: Schema,
    arrow_schema: pa.Schema,
    keys_out: KeysOut = NO_KEYS_OUT,
) -> pa.Table | None:
    """Return the rows of files inside their regions, in key order; None if they may be many.

    Args:
        lookup: Reads the files.
        regions_by_file: The regions of each file; no regions mean all rows.
        columns: The columns to return, with all keys.
        schema: The table's schema.
        arrow_schema: The same as Arrow's.
        keys_out: The keys whose rows are left out of files.

    Raises:
        DataDamaged: a file is missing or damaged.
        StorageFailed: a file cannot be read.
    """
    if len(regions_by_file) > files_max(lookup) or not all(
        0 < len(regions) <= FEW_REGIONS_MAX for regions in regions_by_file.values()
    ):
        return None
    result = pa.schema([arrow_schema.field(name) for name in columns])
    chosen = _chosen(lookup, regions_by_file, arrow_schema, result)
    if chosen is None:
        return None
    tables = list[pa.Table]()
    for some in _portions([*chosen.items()]):
        reads = [
            partial(_read, arrow_schema, result, found, keys_out.get(name)) for name, found in some
        ]
        inspects = [
            partial(lookup.inspect, name, read, keep=True)
            for (name, _), read in zip(some, reads, strict=True)
        ]
        found = [pa.Table.from_batches(each, result) for each in lookup.at_once(inspects)]
        regions = [tuple(regions_by_file[name]) for name, _ in some]
        if len({*regions}) == 1:  # one comparison for all files is faster
            found, regions = [pa.concat_tables(found)], regions[:1]
        tables += [
            rows_inside(rows, each, schema) for rows, each in zip(found, regions, strict=True)
        ]
    if not tables:
        return result.empty_table()
    rows = pa.concat_tables(tables)
    return sort_small(rows, schema.key_names) if len(chosen) > 1 else rows


def _portions(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[start : start + _AT_ONCE] for start in range(0, len(items), _AT_ONCE))


def _chosen(
    lookup: LookupReader,
    regions_by_file: Mapping[str, Sequence[Region]],
    arrow_schema: pa.Schema,
    result: pa.Schema,
) -> dict[str, tuple[KeyRows, ...]] | None:
    """Choose rows of files by the bounds of their pages; None if they are many together."""
    rows_max, bytes_max = _most(lookup, len(regions_by_file))
    distinct = {tuple(regions) for regions in regions_by_file.values()}
    kind = arrow_schema.field(0).type
    limits = {regions: [key_limits(each, kind) for each in regions] for regions in distinct}
    table = _Table(arrow_schema, result, rows_max)
    rows = size = 0
    chosen = dict[str, tuple[KeyRows, ...]]()
    for some in _portions([*regions_by_file.items()]):
        looks = [partial(_choose, table, limits[tuple(regions)]) for _, regions in some]
        inspects = [
            partial(lookup.inspect, name, look, keep=True)
            for (name, _), look in zip(some, looks, strict=True)
        ]
        for (name, _), choice in zip(some, lookup.at_once(inspects), strict=True):
            if choice is None:
                return None
            rows, size = rows + choice.rows, size + choice.size_bytes
            if choice.found:
                chosen[name] = choice.found
        if rows > rows_max or size > bytes_max:
            return None
    return chosen


_AT_ONCE = 96
"""Files that are read at once: their requests are, where they are remote, and rows in memory."""


def _most(lookup: LookupReader, files: int) -> tuple[int, int]:
    """Return how many rows and bytes of so many files are read here."""
    if lookup.is_remote:
        return REMOTE_ROWS, FEW_BYTES
    times = max(1, files // FEW_FILES)
    return FEW_ROWS * min(times, MANY_ROWS_TIMES), FEW_BYTES * min(times, MANY_BYTES_TIMES)


@dataclass(frozen=True, slots=True)
class _Table:
    """What is read of each file.

    Attributes:
        arrow_schema: The table's schema.
        result: The columns that are read.
        rows_max: How many rows are few.
    """

    arrow_schema: pa.Schema
    result: pa.Schema
    rows_max: int


@dataclass(frozen=True, slots=True)
class _Choice:
    """The rows of a file's pages that may have keys of some regions, and the pages' bytes."""

    found: tuple[KeyRows, ...]
    rows: int
    size_bytes: int


def _choose(
    table: _Table, limits: Sequence[tuple[Any, Any]], index: ParquetIndex, read: ReadRanges
) -> _Choice | None:
    """Choose rows of a file by the bounds of its pages; None if they are many."""
    bound = index.columns(table.arrow_schema)
    key_leaf = bound[table.arrow_schema.names[0]].leaf
    row_counts = index.footer.row_counts
    groups = [
        group
        for group in places_between(index.group_bounds(key_leaf), limits).tolist()
        if row_counts[group]
    ]
    if sum(row_counts[group] for group in groups[1:-1]) > table.rows_max:
        return None
    leaves = tuple(leaf for name in table.result.names for leaf in bound[name].column.leaves)
    index.load(groups, leaves, (key_leaf,), read)
    found, rows, size = list[KeyRows](), 0, 0
    for group in groups:
        pages = places_between(index.bounds(group, key_leaf), limits)
        if not len(pages):
            continue
        firsts = index.locations(group, key_leaf).first_rows
        starts, ends, places = as_ranges(pages, np.zeros(len(pages), np.int64))
        found.append(KeyRows(group, firsts[starts], firsts[ends], places))
        own = int((firsts[ends] - firsts[starts]).sum())
        rows += own
        chunks = sum(index.chunk(group, leaf).size for leaf in leaves)
        size += chunks * own // row_counts[group]
    return _Choice(tuple(found), rows, size)


def key_limits(region: Region, kind: pa.DataType) -> tuple[Any, Any]:
    """Return the ends of the first row key, comparable with bounds of pages."""
    side = region.ranges[0]
    return _bound(side.min, kind), None if side.max is None else _bound(side.max, kind)


def _bound(value: Any, kind: pa.DataType) -> Any:
    return key_bound(comparable_array(one_value(value, kind))[0].as_py())[0]


def places_between(bounds: PageBounds, limits: Sequence[tuple[Any, Any]]) -> Any:
    """Return the places that may have keys between some limits, ascending.

    Bounds may be cut short, so one that equals an upper limit may have lesser keys.
    """
    inside = np.zeros(len(bounds.minimums), np.bool_)
    for low, high in limits:
        first = int(bounds.maximums.searchsorted(low, "left"))
        end = len(inside) if high is None else int(bounds.minimums.searchsorted(high, "right"))
        inside[first:end] = True
    return np.flatnonzero(inside)


def _read(
    arrow_schema: pa.Schema,
    result: pa.Schema,
    found: Sequence[KeyRows],
    keys_out: LeftOutKeys | None,
    index: ParquetIndex,
    read: ReadRanges,
) -> list[pa.RecordBatch]:
    """Read the columns of rows, and keep those with keys that stay."""
    bound = index.columns(arrow_schema)
    columns = [bound[name] for name in result.names]
    batches = (
        pa.RecordBatch.from_arrays(arrays, schema=result)
        for _, arrays in read_rows(index, found, columns, read)
    )
    return [rows if keys_out is None else keys_out.staying(rows) for rows in batches]


def rows_inside(rows: pa.Table, regions: Sequence[Region], schema: Schema) -> pa.Table:
    """Return the rows with keys inside any of some regions, in their order."""
    return rows.filter(reduce(pc.or_, [_are_inside(rows, each, schema) for each in regions]))


def _are_inside(rows: pa.Table, region: Region, schema: Schema) -> Any:
    conditions = []
    for field, side in zip(schema.row_keys, region.ranges, strict=True):
        column = rows.column(rows.schema.get_field_index(field.name))
        if side.min != smallest_value(key_type(field)):
            conditions.append(pc.greater_equal(column, one_value(side.min, column.type)[0]))
        if side.max is not None:
            conditions.append(pc.less(column, one_value(side.max, column.type)[0]))
    return reduce(pc.and_, conditions) if conditions else pa.repeat(True, rows.num_rows)


# ---------------------------------------------------------------- first rows
#
# Finds how far a read must go for its first rows, so that a limited query reads few pages.


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
                lookup.inspect,
                name,
                partial(_bound_after, regions or whole, rows, arrow_schema),
                keep=True,
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
