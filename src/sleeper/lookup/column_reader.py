"""Reads rows of columns in one row group: chooses pages, fetches them together, decodes them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from sleeper.lookup.columns import (
    ArrowValues,
    BoundColumn,
    DecimalValues,
    DecodePath,
    FixedWidthValues,
    Ints,
    OptionalValues,
    Values,
    as_type,
    positions,
)
from sleeper.lookup.dictionary_pages import (
    Dictionary,
    DictionaryValues,
    has_indexes,
    read_dictionary,
    read_indexes,
)
from sleeper.lookup.parquet import mini_file
from sleeper.lookup.parquet.file_end import ReadRanges
from sleeper.lookup.parquet.footer import VALUE_WIDTHS, Leaf
from sleeper.lookup.parquet.page_index import Bounds, PageBounds, PageLocations
from sleeper.lookup.parquet.pages import (
    DELTA_BINARY_PACKED,
    DICTIONARY_PAGE,
    Buffer,
    Flags,
    Page,
    check_levels,
    read_pages,
)
from sleeper.lookup.parquet_index import ParquetIndex
from sleeper.lookup.plain_pages import PlainByteArrays, PlainPages, joined_byte_arrays, plain_values

# ---------------------------------------------------------------- page ranges
#
# Computes which pages contain which rows: pure arithmetic on sorted row ranges.
#
# A set of rows is two arrays, `starts` and `ends`: ascending, disjoint, half-open ranges.


class Cover(NamedTuple):
    """The pages that contain some rows, and the positions of these rows in the concatenated pages.

    Attributes:
        pages: Numbers of the pages, ascending.
        row_count: Rows in these pages.
        starts, ends: The rows, as positions in the concatenated pages.
    """

    pages: Ints
    row_count: int
    starts: Ints
    ends: Ints


def cover_rows(first_rows: Ints, starts: Ints, ends: Ints) -> Cover:
    """Choose the pages that contain the rows.

    Args:
        first_rows: First row of each page, and the row count at the end.
        starts: First rows of the ranges.
        ends: Ends of the ranges.
    """
    low = first_rows.searchsorted(starts, "right") - 1
    high = first_rows.searchsorted(ends, "left")
    pages = covered(low, high, len(first_rows) - 1)
    sizes = first_rows[pages + 1] - first_rows[pages]
    before = np.cumsum(sizes) - sizes
    page_of_start = pages.searchsorted(low)
    local = before[page_of_start] + starts - first_rows[low]
    return Cover(pages, int(sizes.sum()), local, local + (ends - starts))


def cover_span(first_rows: Ints, start: int, end: int) -> Cover:
    """Choose the pages that contain the rows [start, end): a faster `cover_rows` for one range."""
    page = int(first_rows.searchsorted(start, "right")) - 1
    page_end = int(first_rows.searchsorted(end, "left"))
    base = int(first_rows[page])
    return Cover(
        np.arange(page, page_end),
        int(first_rows[page_end]) - base,
        np.array((start - base,)),
        np.array((end - base,)),
    )


def covered(low: Ints, high: Ints, count: int) -> Ints:
    """Return the numbers below `count` that lie in some [low, high), ascending."""
    some = high > low
    steps = np.zeros(count + 1, np.int64)
    np.add.at(steps, low[some], 1)
    np.add.at(steps, high[some], -1)
    return np.flatnonzero(np.cumsum(steps)[:count] > 0)


def pages_of_keys(bounds: PageBounds, keys: Bounds) -> tuple[Ints, Ints]:
    """Return for each key the pages [low, high) of a sorted column that may contain it."""
    low = bounds.maximums.searchsorted(keys, "left")
    high = bounds.minimums.searchsorted(keys, "right")
    return low, high


def pages_with_any(bounds: PageBounds, keys: Bounds) -> Ints:
    """Return the pages of any column that may contain some of the ascending keys."""
    low = keys.searchsorted(bounds.minimums, "left")
    high = keys.searchsorted(bounds.maximums, "right")
    return np.flatnonzero(high > low)


def clip(starts: Ints, ends: Ints, first_rows: Ints, pages: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the parts of the ranges that are in `pages`, and for each the number of its range."""
    page_starts, page_ends = first_rows[pages], first_rows[pages + 1]
    low = page_ends.searchsorted(starts, "right")
    high = page_starts.searchsorted(ends, "left")
    some = np.maximum(high - low, 0)
    which = np.repeat(np.arange(len(starts)), some)
    page = positions(low, low + some)
    return (
        np.maximum(starts[which], page_starts[page]),
        np.minimum(ends[which], page_ends[page]),
        which,
    )


def as_ranges(rows: Ints, codes: Ints) -> tuple[Ints, Ints, Ints]:
    """Join consecutive rows with the same code into ranges with their code."""
    if len(rows) == 0:
        return rows, rows, codes
    breaks = np.flatnonzero((rows[1:] != rows[:-1] + 1) | (codes[1:] != codes[:-1])) + 1
    first = np.concatenate(([0], breaks))
    last = np.concatenate((breaks, [len(rows)])) - 1
    return rows[first], rows[last] + 1, codes[first]


Range = tuple[int, int]

_MANY_PAGES = 4
"""From so many pages of differences on pyarrow reads them, which takes 0.1 ms to begin with."""


class PageRequest(NamedTuple):
    """Pages of one column to read.

    Attributes:
        cover: The rows in these pages.
        leaf_pages: For each leaf the numbers of its pages.
        dictionaries: For each leaf whether its dictionary page is fetched.
        ranges: (offset, length) of everything to fetch: for each leaf its dictionary page, if any,
            then its pages in order.
    """

    column: BoundColumn
    group: int
    cover: Cover
    leaf_pages: tuple[Ints, ...]
    dictionaries: tuple[bool, ...]
    ranges: tuple[Range, ...]

    @property
    def size_bytes(self) -> int:
        """The number of bytes to fetch."""
        return sum(length for _, length in self.ranges)


def request_rows(
    index: ParquetIndex,
    group: int,
    column: BoundColumn,
    starts: Ints,
    ends: Ints,
    covers: dict[int, Cover] | None = None,
) -> PageRequest:
    """Choose the pages of a column that contain some rows of a row group.

    Args:
        index: The file's.
        group: The row group.
        column: The column.
        starts: First rows of the ranges.
        ends: Ends of the ranges.
        covers: Pages that were chosen for other columns, by the identity of their first rows, which
            columns share.
    """
    leaves = column.column.leaves
    if len(leaves) == 1:
        locations = index.locations(group, column.leaf)
        first_rows = locations.first_rows
        known = None if covers is None else covers.get(id(first_rows))
        if known is not None:
            cover = known
        elif len(starts) == 1:
            cover = cover_span(first_rows, int(starts[0]), int(ends[0]))
        else:
            cover = cover_rows(first_rows, starts, ends)
        if covers is not None:
            covers[id(first_rows)] = cover
        before: tuple[Range, ...] = ()
        if index.dictionary(group, column.leaf) is None:
            before = _dictionary_range(index, group, column.leaf)
        only = (*before, *_page_ranges(locations, cover.pages))
        return PageRequest(column, group, cover, (cover.pages,), (bool(before),), only)
    # Pages of the leaves of one column may have different rows: take pages between common borders.
    firsts = [index.locations(group, leaf).first_rows for leaf in leaves]
    cuts = reduce(np.intersect1d, firsts)
    cover = cover_rows(cuts, starts, ends)
    leaf_pages = []
    dictionaries = []
    ranges: tuple[Range, ...] = ()
    for leaf, first_rows in zip(leaves, firsts, strict=True):
        span = cuts[cover.pages].searchsorted(first_rows[:-1], "right") - 1
        inside = (span >= 0) & (first_rows[:-1] < cuts[cover.pages + 1][span])
        leaf_pages.append(np.flatnonzero(inside))
        before = _dictionary_range(index, group, leaf)
        dictionaries.append(bool(before))
        ranges += (*before, *_page_ranges(index.locations(group, leaf), leaf_pages[-1]))
    return PageRequest(column, group, cover, tuple(leaf_pages), tuple(dictionaries), ranges)


def _page_ranges(locations: PageLocations, pages: Ints) -> tuple[Range, ...]:
    if len(pages) == 1:
        page = pages[0]
        return ((int(locations.offsets[page]), int(locations.sizes[page])),)
    offsets, sizes = locations.offsets[pages].tolist(), locations.sizes[pages].tolist()
    return tuple(zip(offsets, sizes, strict=True))


def _dictionary_range(index: ParquetIndex, group: int, leaf: int) -> tuple[Range, ...]:
    """Return where the dictionary page of a chunk is; nothing if it has none."""
    chunk, locations = index.chunk(group, leaf), index.locations(group, leaf)
    if chunk.may_have_dictionary and locations.page_each:
        first = int(locations.offsets[0])
        if first > chunk.offset:
            return ((chunk.offset, first - chunk.offset),)
    return ()


def read_requests(
    index: ParquetIndex, requests: Sequence[PageRequest], read: ReadRanges
) -> list[Values]:
    """Fetch the pages of all requests in one round, and decode them.

    Raises:
        ValueError, OSError: a page is damaged; the message names row group and column.
    """
    blobs = fetch([each for request in requests for each in request.ranges], read)
    found, at = [], 0
    for request in requests:
        end = at + len(request.ranges)
        try:
            found.append(_decode(index, request, blobs[at:end]))
        except DECODING_ERRORS as error:
            name = request.column.name
            raise ValueError(
                f"row group {request.group} of column {name!r} cannot be decoded: {error}"
            ) from error
        at = end
    return found


DECODING_ERRORS = (
    ValueError,
    OSError,
    LookupError,
    TypeError,
    ArithmeticError,
    MemoryError,
    NotImplementedError,
    RecursionError,
    AttributeError,
    pa.ArrowException,
)
"""The errors that parsers raise for damaged bytes. Not caught around reads."""


def fetch(ranges: Sequence[Range], read: ReadRanges) -> Sequence[Buffer]:
    """Read ranges; adjacent ranges are read as one."""
    if len(ranges) == 1:
        return read(ranges)
    joined: list[list[int]] = []
    runs: list[int] = []
    for offset, length in ranges:
        if joined and joined[-1][0] + joined[-1][1] == offset:
            joined[-1][1] += length
        else:
            joined.append([offset, length])
        runs.append(len(joined) - 1)
    blobs = read([(offset, length) for offset, length in joined])
    if len(blobs) == len(ranges):
        return blobs
    views = [memoryview(blob) for blob in blobs]
    parts: list[Buffer] = []
    for (offset, length), run in zip(ranges, runs, strict=True):
        at = offset - joined[run][0]
        parts.append(views[run][at : at + length])
    return parts


def _decode(index: ParquetIndex, request: PageRequest, blobs: Sequence[Buffer]) -> Values:
    column = request.column
    if column.plain is not DecodePath.BY_PYARROW:
        leaf, chunk = index.footer.leaves[column.leaf], index.chunk(request.group, column.leaf)
        dictionary = _dictionary_of(index, request, blobs)
        data = blobs[1:] if request.dictionaries[0] else blobs
        pages = [page for blob in data for page in read_pages(blob, chunk, leaf)]
        _check_rows(index, request, pages)
        index.note_checksums(pages)
        needed = int(request.cover.ends[-1])
        if dictionary is not None and len(pages) < _MANY_PAGES and has_indexes(pages, leaf):
            indexes, present = read_indexes(pages, chunk, leaf, needed)
            values = DictionaryValues(indexes, dictionary, _stored_type(column, leaf))
            return _as_column(values, present, column)
        if len(pages) >= _MANY_PAGES and all(p.encoding == DELTA_BINARY_PACKED for p in pages):
            count = request.cover.row_count
            whole = [mini_file.LeafPages(leaf, chunk, b"", data, count)]
            return ArrowValues(
                as_type(mini_file.decode(column.column, whole, count), column.arrow_type)
            )
        found = plain_values(pages, chunk, leaf, needed)
        if found is not None:
            return _as_column(_plain_values(found, column, leaf), found.present, column)
    return ArrowValues(as_type(_decode_by_pyarrow(index, request, blobs), column.arrow_type))


def _dictionary_of(
    index: ParquetIndex, request: PageRequest, blobs: Sequence[Buffer]
) -> Dictionary | None:
    """Return the dictionary of a flat column's chunk, which is kept when it is first read."""
    group, number = request.group, request.column.leaf
    known = index.dictionary(group, number)
    if known is not None or not request.dictionaries[0]:
        return known
    leaf, chunk = index.footer.leaves[number], index.chunk(group, number)
    pages = read_pages(blobs[0], chunk, leaf)
    index.note_checksums(pages)
    found = read_dictionary(pages, blobs[0], chunk, leaf)
    if found is not None:
        index.keep_dictionary(group, number, found)
    return found


def _plain_values(found: PlainPages, column: BoundColumn, leaf: Leaf) -> Values:
    kind = _stored_type(column, leaf)
    if column.plain is DecodePath.BYTE_ARRAYS:
        if found.lengths is None:
            return PlainByteArrays(found.data, found.value_count, kind)
        return joined_byte_arrays(found, kind)
    return FixedWidthValues(found.data, leaf.physical_type, kind, found.value_count)


def _stored_type(column: BoundColumn, leaf: Leaf) -> pa.DataType:
    """Return the type of a column's values in its pages: of decimals, integers."""
    if column.plain is not DecodePath.DECIMALS:
        return column.arrow_type
    return pa.int32() if VALUE_WIDTHS[leaf.physical_type] == 4 else pa.int64()


def _as_column(values: Values, present: Flags | None, column: BoundColumn) -> Values:
    """Return values with their nulls, in the type of the column."""
    if present is not None:
        values = OptionalValues(values, present)
    if column.plain is DecodePath.DECIMALS:
        return DecimalValues(values, column.arrow_type)
    return values


def _check_rows(index: ParquetIndex, request: PageRequest, pages: Sequence[Page]) -> None:
    """Check that each page of a flat column has as many values as its rows in the offset index."""
    counts = [page.value_count for page in pages if page.kind != DICTIONARY_PAGE]
    chosen = request.cover.pages
    if len(chosen) == 1:
        counts, expected = [sum(counts)], [request.cover.row_count]
    else:
        first_rows = index.locations(request.group, request.column.leaf).first_rows
        expected = (first_rows[chosen + 1] - first_rows[chosen]).tolist()
    if counts != expected or any(page.row_count not in (None, page.value_count) for page in pages):
        raise ValueError("a page holds another number of rows than its offset index says")


def _check_row_counts(
    locations: PageLocations, chosen: Ints, pages_of_each: Sequence[Sequence[Page]]
) -> None:
    """Compare the row counts in headers of version 2 pages with the offset index."""
    if not locations.page_each:
        return
    expected = (locations.first_rows[chosen + 1] - locations.first_rows[chosen]).tolist()
    for pages, row_count in zip(pages_of_each, expected, strict=True):
        if any(page.row_count not in (None, row_count) for page in pages):
            raise ValueError("a page holds another number of rows than its offset index says")


def _decode_by_pyarrow(
    index: ParquetIndex, request: PageRequest, blobs: Sequence[Buffer]
) -> pa.Array:
    leaves, at = [], 0
    group = request.group
    for number, chosen, fetched in zip(
        request.column.column.leaves, request.leaf_pages, request.dictionaries, strict=True
    ):
        leaf, chunk = index.footer.leaves[number], index.chunk(group, number)
        known = index.dictionary(group, number)
        dictionary = blobs[at] if fetched else b"" if known is None else known.page
        at += fetched
        data = blobs[at : at + len(chosen)]
        at += len(chosen)
        pages_of_each = [read_pages(blob, chunk, leaf) for blob in data]
        for pages in pages_of_each:
            index.note_checksums(pages)
            for page in pages:
                check_levels(page, leaf)
        counts = [
            sum(page.value_count for page in pages if page.kind != DICTIONARY_PAGE)
            for pages in pages_of_each
        ]
        _check_row_counts(index.locations(group, number), chosen, pages_of_each)
        expected = index.value_counts(group, number)
        if expected is not None and counts != expected[chosen].tolist():
            raise ValueError("a page holds another number of values than its column index says")
        if dictionary:
            read_pages(dictionary, chunk, leaf)
        leaves.append(mini_file.LeafPages(leaf, chunk, dictionary, data, sum(counts)))
    return mini_file.decode(request.column.column, leaves, request.cover.row_count)
