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

from sleeper.engine.reading.page_runs import PageRun, RunPages, page_sizes, read_checked_runs
from sleeper.lookup.columns import (
    BoundColumn,
    DecodePath,
    Ints,
    as_in_table,
    as_type,
    positions,
    stored_columns,
)
from sleeper.lookup.parquet.file_end import ReadRanges
from sleeper.lookup.parquet.footer import CODECS, VALUE_WIDTHS, ColumnChunk, Leaf
from sleeper.lookup.parquet.mini_file import (
    GroupPages,
    LeafPages,
    decode_byte_arrays_from,
    decode_columns,
)
from sleeper.lookup.parquet_index import ParquetIndex

# ---------------------------------------------------------------- plain columns
#
# Decodes all pages of a PLAIN column at once, without nulls: decompressed by one zstd stream.
#
# A zstd frame that is decompressed alone costs 16 us, because pyarrow makes a new context for
# each: for pages of 8 kB that is most of the time. One stream keeps its context from frame to
# frame.

_PLAIN_ONLY = frozenset((0, 3))  # PLAIN values; RLE is for levels, which flat required columns lack


def has_plain_pages(column: BoundColumn, leaf: Leaf, chunks: Sequence[ColumnChunk]) -> bool:
    """Return whether `decode_plain_pages` may decode chunks of a column."""
    return (
        column.plain in (DecodePath.FIXED_WIDTH, DecodePath.BYTE_ARRAYS)
        and not leaf.definition_max
        and all(
            CODECS[chunk.codec] == "zstd" and chunk.encodings <= _PLAIN_ONLY for chunk in chunks
        )
    )


def decode_plain_pages(
    column: BoundColumn, leaf: Leaf, runs: Sequence[RunPages], row_count: int
) -> pa.Array | None:
    """Return the values of all runs, one after the other.

    Args:
        column: The column.
        leaf: Its only leaf.
        runs: Its pages, which were checked.
        row_count: Their rows.

    Returns:
        None if a header has a rare form, or a page is not compressed: then pyarrow must decode.

    Raises:
        ValueError, OSError: the pages hold another number of values.
    """
    bodies = list[memoryview]()
    size = 0
    for run in runs:
        sizes = page_sizes(run.data, run.heads)
        if sizes is None:
            return None
        inflated, compressed = sizes
        ends = [*run.heads[1:], len(run.data)]
        data = memoryview(run.data)
        for end, length, full in zip(ends, compressed, inflated, strict=True):
            if length == full:
                return None
            bodies.append(data[end - length : end])
        size += sum(inflated)
    with pa.CompressedInputStream(pa.PythonFile(_Bodies(bodies), mode="r"), "zstd") as stream:
        if column.plain is DecodePath.BYTE_ARRAYS:
            found = decode_byte_arrays_from(stream.readinto, size, row_count)
            buffers = found.buffers()
        else:
            buffers = [None, stream.read_buffer(size)]
            if len(buffers[1]) != row_count * VALUE_WIDTHS[leaf.physical_type]:
                raise ValueError(f"column {column.name!r} has another number of values than rows")
        if stream.read(1):
            raise ValueError(f"column {column.name!r} has pages of other sizes than their headers")
    return pa.Array.from_buffers(column.arrow_type, row_count, buffers)


class _Bodies:
    """A file for pyarrow: the bodies of pages, one after the other. They are not all joined."""

    closed = False

    def __init__(self, bodies: Sequence[memoryview]) -> None:
        self._bodies = iter(bodies)
        self._rest = memoryview(b"")

    def read(self, size: int) -> bytes:
        """Return the next bytes: `size` of them, or fewer at the end."""
        parts = [self._rest[:size]]
        self._rest, left = self._rest[size:], size - len(parts[0])
        while left and (body := next(self._bodies, None)) is not None:
            if len(body) > left:
                self._rest, body = body[left:], body[:left]
            parts.append(body)
            left -= len(body)
        return b"".join(parts)

    def close(self) -> None:
        """Do nothing: the pages are in memory."""


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
        GroupPages(cover.row_count, [_leaf_pages(index, own[number]) for own in by_leaf])
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
        groups = [
            GroupPages(
                row_count,
                [_leaf_pages(index, leaf[number]) for _, own in others for leaf in own],
            )
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


def _leaf_pages(index: ParquetIndex, pages: RunPages) -> LeafPages:
    run = pages.run
    leaf, chunk = index.footer.leaves[run.leaf], index.chunk(run.group, run.leaf)
    return LeafPages(leaf, chunk, pages.dictionary, [pages.data], _value_count(index, run))


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
