"""Reads rows of a data file that has page sums: pages are read once, checked, and then decoded.

pyarrow decodes the bytes that were checked, from a small Parquet file in memory. It keeps no freed
memory, unlike DataFusion's threads, and decodes a column at the same cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa

from sleeper.engine.reading.inflated_pages import (
    decode_plain_pages,
    has_plain_pages,
    inflated,
)
from sleeper.engine.reading.page_runs import PageRun, RunPages, read_checked_runs
from sleeper.lookup.columns import (
    BoundColumn,
    Ints,
    as_in_table,
    as_type,
    positions,
    stored_columns,
)
from sleeper.lookup.parquet.file_end import ReadRanges
from sleeper.lookup.parquet.footer import NOT_COMPRESSED
from sleeper.lookup.parquet.mini_file import GroupPages, LeafPages, decode_columns
from sleeper.lookup.parquet_index import ParquetIndex


@dataclass(frozen=True, slots=True)
class GroupRows:
    """Rows of one row group: those from `starts` up to, not including, `ends`, in order.

    Attributes:
        group: The row group's number.
        starts, ends: Disjoint ascending ranges of rows, counted from the row group's first.
    """

    group: int
    starts: Ints
    ends: Ints

    @classmethod
    def span(cls, group: int, start: int, end: int) -> GroupRows:
        """Return one range of rows."""
        return cls(group, np.array([start]), np.array([end]))

    @property
    def row_count(self) -> int:
        """The number of rows."""
        return int((self.ends - self.starts).sum())


def decode_rows(
    index: ParquetIndex,
    chosen: Sequence[GroupRows],
    names: Sequence[str],
    arrow_schema: pa.Schema,
    read: ReadRanges,
) -> list[pa.RecordBatch]:
    """Return rows of some row groups, with the columns `names`, in this order.

    Args:
        index: The file's, which has page sums.
        chosen: The rows, in the order of the file.
        names: The columns to return.
        arrow_schema: The table's schema.
        read: Reads the file.

    Raises:
        ValueError, OSError: a page is damaged, or cannot be decoded.
    """
    bound = index.columns(arrow_schema)
    columns = [bound[name] for name in names]
    schema = pa.schema([arrow_schema.field(name) for name in names])
    if not all(column.is_as_stored for column in columns):
        return _decode_changed(index, chosen, columns, schema, read)
    return _decode_stored(index, chosen, columns, schema, read)


def _decode_changed(
    index: ParquetIndex,
    chosen: Sequence[GroupRows],
    columns: Sequence[BoundColumn],
    schema: pa.Schema,
    read: ReadRanges,
) -> list[pa.RecordBatch]:
    """Decode columns of a file that has some of them otherwise than the table, or not at all."""
    stored = stored_columns(columns)
    if stored:
        of_file = pa.schema([(column.name, column.arrow_type) for column in stored])
        batches = _decode_stored(index, chosen, stored, of_file, read)
        parts = [(batch.columns, batch.num_rows) for batch in batches]
    else:
        parts = [([], sum(each.row_count for each in chosen))]
    return [
        pa.RecordBatch.from_arrays(as_in_table(columns, arrays, row_count), schema=schema)
        for arrays, row_count in parts
    ]


def _decode_stored(
    index: ParquetIndex,
    chosen: Sequence[GroupRows],
    columns: Sequence[BoundColumn],
    schema: pa.Schema,
    read: ReadRanges,
) -> list[pa.RecordBatch]:
    covers, by_leaf = _checked_pages(index, chosen, columns, read)
    arrays = _decode_columns(index, columns, by_leaf, [cover.row_count for cover in covers])
    return _selected(pa.RecordBatch.from_arrays(arrays, schema=schema), chosen, covers)


def _checked_pages(
    index: ParquetIndex,
    chosen: Sequence[GroupRows],
    columns: Sequence[BoundColumn],
    read: ReadRanges,
) -> tuple[list[_Cover], list[list[RunPages]]]:
    """Read the pages that have some rows; return which, and for each leaf those of each group."""
    leaves = tuple(leaf for column in columns for leaf in column.column.leaves)
    index.load([each.group for each in chosen], leaves, (), read)
    covers = [_cover(index, rows, leaves) for rows in chosen]
    pages = read_checked_runs(index, [run for cover in covers for run in cover.runs], read)
    return covers, [pages[number :: len(leaves)] for number in range(len(leaves))]


def pages_of_groups(
    index: ParquetIndex,
    groups: Sequence[GroupRows],
    columns: Sequence[BoundColumn],
    read: ReadRanges,
) -> list[GroupPages]:
    """Return the checked pages of whole row groups, for `decode_columns`.

    Raises:
        ValueError, OSError: a page is damaged.
    """
    covers, by_leaf = _checked_pages(index, groups, columns, read)
    return [
        GroupPages(cover.row_count, _leaf_pages(index, [own[number] for own in by_leaf]))
        for number, cover in enumerate(covers)
    ]


def _decode_columns(
    index: ParquetIndex,
    columns: Sequence[BoundColumn],
    pages: Sequence[Sequence[RunPages]],
    row_counts: Sequence[int],
) -> list[pa.Array]:
    """Decode pages, which are given for each leaf of each column; by pyarrow if they are not plain.

    Args:
        index: The file's.
        columns: The columns.
        pages: For each leaf of each column its pages in each row group.
        row_counts: Their rows in each row group.
    """
    arrays = list[pa.Array | None]()
    others, left = list[tuple[BoundColumn, list[Sequence[RunPages]]]](), iter(pages)
    for column in columns:
        own = [next(left) for _ in column.column.leaves]
        arrays.append(_decode_plain(index, column, own[0], sum(row_counts)))
        if arrays[-1] is None:
            others.append((column, own))
    if others:
        leaves = [leaf for _, own in others for leaf in own]
        every_run = _leaf_pages(index, [pages for leaf in leaves for pages in leaf])
        count = len(row_counts)
        groups = [
            GroupPages(row_count, every_run[number::count])
            for number, row_count in enumerate(row_counts)
        ]
        found = iter(decode_columns([column.column for column, _ in others], groups))
        for number, column in enumerate(columns):
            if arrays[number] is None:
                arrays[number] = as_type(next(found), column.arrow_type)
    return arrays


def _decode_plain(
    index: ParquetIndex, column: BoundColumn, pages: Sequence[RunPages], row_count: int
) -> pa.Array | None:
    leaf = index.footer.leaves[column.leaf]
    chunks = [index.chunk(each.run.group, column.leaf) for each in pages]
    if not has_plain_pages(column, leaf, chunks):
        return None
    return decode_plain_pages(column, leaf, pages, row_count)


def _leaf_pages(index: ParquetIndex, runs: Sequence[RunPages]) -> list[LeafPages]:
    """Return what pyarrow decodes of each run; many pages are decompressed before."""
    chunks = [index.chunk(each.run.group, each.run.leaf) for each in runs]
    found = list[LeafPages]()
    for pages, chunk, plain in zip(runs, chunks, inflated(runs, chunks), strict=True):
        leaf, count = index.footer.leaves[pages.run.leaf], _value_count(index, pages.run)
        if plain is None:
            found.append(LeafPages(leaf, chunk, pages.dictionary, [pages.data], count))
        else:
            without_codec = chunk._replace(codec=NOT_COMPRESSED)
            found.append(LeafPages(leaf, without_codec, b"", plain, count))
    return found


@dataclass(frozen=True, slots=True)
class _Cover:
    """The pages of one row group that are read: of every leaf those with the same rows.

    Attributes:
        first_row: Their first row, counted from the row group's first.
        row_count: Their rows.
        runs: The pages, one run for each leaf.
    """

    first_row: int
    row_count: int
    runs: tuple[PageRun, ...]


def _cover(index: ParquetIndex, rows: GroupRows, leaves: Sequence[int]) -> _Cover:
    """Choose the fewest pages with all the rows; they begin and end at borders of all leaves."""
    first_rows = [index.locations(rows.group, leaf).first_rows for leaf in leaves]
    low, high = 0, int(first_rows[0][-1])
    start, end = int(rows.starts[0]), int(rows.ends[-1])
    if (start > low or end < high) and _may_be_divided(index, rows.group, leaves):
        borders = reduce(np.intersect1d, first_rows)
        low = int(borders[borders.searchsorted(start, "right") - 1])
        high = int(borders[borders.searchsorted(end, "left")])
    runs = tuple(
        PageRun(rows.group, leaf, int(own.searchsorted(low)), int(own.searchsorted(high)))
        for leaf, own in zip(leaves, first_rows, strict=True)
    )
    return _Cover(low, high - low, runs)


def _may_be_divided(index: ParquetIndex, group: int, leaves: Sequence[int]) -> bool:
    """Return whether the number of values of each page is known."""
    return all(
        index.footer.leaves[leaf].repetition_max == 0 or index.value_counts(group, leaf) is not None
        for leaf in leaves
    )


def _value_count(index: ParquetIndex, run: PageRun) -> int:
    locations = index.locations(run.group, run.leaf)
    if run.first == 0 and run.end == len(locations.offsets):
        return index.chunk(run.group, run.leaf).value_count
    counts = index.value_counts(run.group, run.leaf)
    if counts is not None:
        return int(counts[run.first : run.end].sum())
    return int(locations.first_rows[run.end] - locations.first_rows[run.first])


_SLICE_ROWS = 1_000
"""So many rows in a range on average are returned as slices; fewer are copied together."""


def _selected(
    batch: pa.RecordBatch, chosen: Sequence[GroupRows], covers: Sequence[_Cover]
) -> list[pa.RecordBatch]:
    """Return the chosen rows of decoded pages."""
    counts = np.array([cover.row_count for cover in covers])
    shifts = [
        int(before) - cover.first_row
        for before, cover in zip(np.cumsum(counts) - counts, covers, strict=True)
    ]
    moved = zip(chosen, shifts, strict=True)
    starts, ends = join_ranges(
        np.concatenate([rows.starts + shift for rows, shift in moved]),
        np.concatenate([rows.ends + shift for rows, shift in zip(chosen, shifts, strict=True)]),
    )
    if len(starts) > 1 and (ends - starts).sum() < _SLICE_ROWS * len(starts):
        return [batch.take(pa.array(positions(starts, ends)))]
    return [
        batch.slice(start, end - start)
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
    ]


def join_ranges(starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """Join ranges that are adjacent.

    >>> starts, ends = join_ranges(np.array([0, 5, 9]), np.array([5, 7, 12]))
    >>> starts.tolist(), ends.tolist()
    ([0, 9], [7, 12])
    """
    if len(starts) < 2:
        return starts, ends
    apart = starts[1:] != ends[:-1]
    return (
        starts[np.concatenate(([True], apart))],
        ends[np.concatenate((apart, [True]))],
    )
