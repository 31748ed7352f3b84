"""The page index of one column in one row group, as numpy arrays.

The offset index has the places of pages and their first rows; the column index has bounds of their
values. Bounds are used only as bounds: writers shorten long ones, and omit bounds that would be too
long, so a missing bound means "may contain any value".

Source: parquet-format, PageIndex.md and parquet.thrift (OffsetIndex, ColumnIndex).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sleeper.lookup.parquet.compact_protocol import (
    BINARY,
    LIST,
    STRUCT,
    read_list_header,
    read_struct,
)

Ints = npt.NDArray[np.int64]
Bounds = npt.NDArray[Any]
"""int64, or fixed-width bytes (numpy `S`), which compare as unsigned bytes, padded with zeros.
Padding and truncating keep the order but make some unequal values equal, which is correct for
bounds but not for keys."""

BOUND_WIDTH_MAX = 256
"""Compared bytes of a bound. With a longer common prefix more pages may match, which is slow but
not wrong."""

_HIGHEST = b"\xff" * BOUND_WIDTH_MAX
_INT_WIDTHS = {1: 4, 2: 8}


class PageLocations(NamedTuple):
    """The places of the pages of one column chunk.

    Attributes:
        offsets: File offset of each page's header.
        sizes: Bytes of each page, header included.
        first_rows: First row of each page, counted in the row group; one more at the end, the row
            count.
        page_each: True when each location holds exactly one page. False when the file has no
            offset index: then there is one location, the whole column chunk.
    """

    offsets: Ints
    sizes: Ints
    first_rows: Ints
    page_each: bool

    @property
    def row_counts(self) -> Ints:
        """The number of rows of each page."""
        return np.diff(self.first_rows)

    @property
    def size_bytes(self) -> int:
        """About what it takes in memory."""
        return 3 * self.offsets.nbytes + 400

    def check_tiles(self, first_page: int, end: int) -> None:
        """Check that pages are adjacent from the first data page, or later, to the chunk's end.

        Raises:
            ValueError: they are not.
        """
        ends = self.offsets + self.sizes
        if (
            self.offsets[0] < first_page
            or ends[-1] != end
            or not np.array_equal(ends[:-1], self.offsets[1:])
        ):
            raise ValueError("an offset index does not fit its column chunk")


class PageBounds(NamedTuple):
    """Bounds of the values in the pages of one key column: `minimums[i] <= value <=
    maximums[i]`.
    """

    minimums: Bounds
    maximums: Bounds

    @property
    def size_bytes(self) -> int:
        """About what it takes in memory."""
        return self.minimums.nbytes + self.maximums.nbytes + 300


def read_offset_index(data: bytes, row_count: int) -> PageLocations:
    """Parse an OffsetIndex.

    Raises:
        ValueError: it is not one, or its rows do not ascend from 0 to `row_count`.
    """
    (found,) = read_offset_indexes([(data, row_count)])
    return found


def read_offset_indexes(indexes: Sequence[tuple[bytes, int]]) -> list[PageLocations]:
    """Parse several OffsetIndexes, each with its number of rows, in vectorised form.

    Raises:
        ValueError: as `read_offset_index`.
    """
    counts, starts, at = [], [], 0
    for data, _ in indexes:
        if not data or data[0] != (1 << 4 | LIST):
            raise ValueError("an offset index does not start with its pages")
        kind, count, first = read_list_header(data, 1)
        if kind != STRUCT or count == 0:
            raise ValueError("an offset index has no pages")
        counts.append(count)
        starts.append(at + first)
        at += len(data)
    blobs = [data for data, _ in indexes]
    if not counts:
        return []
    table = None if sum(counts) < _FEW_PAGES else _plain_locations(blobs, starts, counts)
    if table is None:
        table = np.concatenate([_any_locations(data) for data in blobs], axis=1)
    offsets, sizes, first_rows = table
    if not (sizes > 0).all() or offsets.min() < 4:
        raise ValueError("an offset index has impossible offsets")
    found, page = list[PageLocations](), 0
    for (_, row_count), count in zip(indexes, counts, strict=True):
        own = slice(page, page + count)
        rows = np.append(first_rows[own], np.int64(row_count))
        if rows[0] != 0 or not (rows[1:] > rows[:-1]).all():
            raise ValueError("an offset index has rows out of order")
        if found and np.array_equal(rows, found[-1].first_rows):
            rows = found[-1].first_rows  # shared: the pages of most columns have the same rows
        found.append(PageLocations(offsets[own], sizes[own], rows, page_each=True))
        page += count
    return found


_FEW_PAGES = 5  # so few are parsed faster in Python


def whole_chunk(offset: int, size: int, row_count: int) -> PageLocations:
    """Return one location for a whole column chunk, for a file that has no offset index."""
    return PageLocations(
        np.array([offset], np.int64),
        np.array([size], np.int64),
        np.array([0, row_count], np.int64),
        page_each=False,
    )


def _plain_locations(
    blobs: Sequence[bytes], starts: Sequence[int], counts: Sequence[int]
) -> Ints | None:
    """Parse all page locations with numpy, if each has the usual form.

    The usual form is offset, size, first row, stop, each preceded by a one-byte field header. Such
    a list is a stream of seven varints a page, which numpy can cut without a loop.

    Args:
        blobs: The indexes.
        starts: Where the first page of each begins, in the bytes of all.
        counts: How many pages each has.
    """
    codes = np.frombuffer(b"".join(blobs), np.uint8)
    last_bytes = np.flatnonzero(codes < 128)
    firsts = last_bytes.searchsorted(starts)  # which varint each list begins with
    ends = firsts + 7 * np.array(counts)
    if ends[-1] > len(last_bytes) or (ends[:-1] > firsts[1:]).any():
        return None
    numbers = np.concatenate([np.arange(*run) for run in zip(firsts, ends, strict=True)])
    at = last_bytes[numbers - 1] + 1
    at[numbers.searchsorted(firsts)] = starts
    length = last_bytes[numbers] - at + 1
    at, length = at.reshape(-1, 7), length.reshape(-1, 7)
    heads = codes[at[:, ::2]]
    if (length[:, ::2] != 1).any() or not (heads == (0x16, 0x15, 0x16, 0)).all():
        return None
    at, length = np.ascontiguousarray(at[:, 1::2].T), np.ascontiguousarray(length[:, 1::2].T)
    longest = int(length.max())
    if longest > 9:
        return None
    values = (codes[at] & 127).astype(np.int64)
    for place in range(1, longest):
        more = length > place
        values[more] |= (codes[at[more] + place] & 127).astype(np.int64) << (7 * place)
    if (values & 1).any():  # An odd zigzag number is negative.
        return None
    table: Ints = values >> 1
    return table


def _any_locations(data: bytes) -> Ints:
    pages = read_struct(data)[0].get(1) or []
    rows = [(page[1], page[2], page[3]) for page in pages]
    return np.array(rows, np.int64).reshape(-1, 3).T


def read_column_index(data: bytes, *, physical_type: int, pages: int, ordered: bool) -> PageBounds:
    """Parse the bounds of a ColumnIndex.

    Args:
        data: The bytes of the index.
        physical_type: Parquet's number of the column's physical type.
        pages: How many pages the offset index has.
        ordered: Whether the column's values ascend through the whole file (the first row key). Then
            a missing bound is taken from the neighbour, and bounds that do not ascend are damage.

    Raises:
        ValueError: it is not one, or has another number of pages.
    """
    is_null, minimums, maximums = _lists(data)
    if not len(is_null) == len(minimums) == len(maximums) == pages:
        raise ValueError("a column index and its offset index differ in their number of pages")
    if any(is_null):
        minimums = [None if null else low for null, low in zip(is_null, minimums, strict=True)]
        maximums = [None if null else high for null, high in zip(is_null, maximums, strict=True)]
    return bounds_of(minimums, maximums, physical_type=physical_type, ordered=ordered)


def read_value_counts(
    data: bytes, *, definition_max: int, repetition_max: int
) -> tuple[Ints, Ints] | None:
    """Return the numbers of values and rows of each page; None if the column index has none.

    They are computed from histograms of definition levels and repetition levels; a repetition
    level of 0 starts a row. Only repeated columns need them: others have one value for each row.

    Raises:
        ValueError: the length of a list is not a multiple of the number of pages.
    """
    fields = read_struct(data)[0]
    if not fields.get(6) or not fields.get(7):
        return None
    by_repetition = np.array(fields[6], np.int64).reshape(-1, repetition_max + 1)
    by_definition = np.array(fields[7], np.int64).reshape(-1, definition_max + 1)
    return by_definition.sum(axis=1), by_repetition[:, 0]


def bounds_of(minimums: Any, maximums: Any, *, physical_type: int, ordered: bool) -> PageBounds:
    """Return comparable bounds from Parquet's statistics values; None is a missing one."""
    lows = _bound_array(minimums, physical_type, ordered=ordered, lowest=True)
    highs = _bound_array(maximums, physical_type, ordered=ordered, lowest=False)
    if ordered and not (
        (lows[1:] >= lows[:-1]).all() and (highs[1:] >= highs[:-1]).all() and (highs >= lows).all()
    ):
        raise ValueError("the statistics say that rows are not in key order")
    return PageBounds(lows, highs)


def _lists(data: bytes) -> tuple[Any, Any, Any]:
    """Read the first three fields: null pages, minimums and maximums."""
    at = 0
    found: list[Any] = []
    for _ in range(3):
        if at >= len(data) or data[at] != (1 << 4 | LIST):
            raise ValueError("a column index does not start with its three lists")
        kind, count, at = read_list_header(data, at + 1)
        if not found:
            flags = data[at : at + count]
            found.append(flags.replace(b"\x02", b"\x00"))
            at += count
        elif kind != BINARY:
            raise ValueError("a column index has bounds that are not binary")
        else:
            values, at = _binaries(data, at, count)
            found.append(values)
    return found[0], found[1], found[2]


def _binaries(data: bytes, at: int, count: int) -> tuple[Any, int]:
    """Read `count` binary values: a (count, width) byte array when all have one length, else a
    list.
    """
    width = data[at] if at < len(data) else 0
    end = at + count * (width + 1)
    if 0 < width < 128 and end <= len(data):
        square = np.frombuffer(data, np.uint8, count * (width + 1), at).reshape(count, width + 1)
        if (square[:, 0] == width).all():
            return square[:, 1:], end
    values = []
    for _ in range(count):
        length, shift, byte = 0, 0, 128
        while byte & 128:
            byte = data[at]
            at += 1
            length |= (byte & 127) << shift
            shift += 7
        if at + length > len(data):
            raise ValueError("a column index runs past its end")
        values.append(data[at : at + length])
        at += length
    return values, at


def _bound_array(values: Any, physical_type: int, *, ordered: bool, lowest: bool) -> Bounds:
    if isinstance(values, np.ndarray):
        return _square_bounds(values, physical_type)
    width = _INT_WIDTHS.get(physical_type)
    if width is None:
        missing: Any = b"" if lowest else _HIGHEST
        plain: list[Any] = [None if v is None else v[:BOUND_WIDTH_MAX] for v in values]
    else:
        limits = np.iinfo(np.int64)
        missing = limits.min if lowest else limits.max
        if any(v is not None and len(v) != width for v in values):
            raise ValueError("a bound has the wrong length for its column")
        plain = [None if v is None else int.from_bytes(v, "little", signed=True) for v in values]
    if any(value is None for value in plain):
        plain = _fill(plain, missing, ordered=ordered, lowest=lowest)
    if width is not None:
        return np.array(plain, np.int64)
    return np.array(plain, np.bytes_) if plain else np.empty(0, "S1")


def _square_bounds(values: Any, physical_type: int) -> Bounds:
    width = _INT_WIDTHS.get(physical_type)
    flat = np.ascontiguousarray(values)
    if width is None:
        cut = np.ascontiguousarray(flat[:, :BOUND_WIDTH_MAX])
        return cut.view(f"S{cut.shape[1]}").reshape(-1)
    if flat.shape[1] != width:
        raise ValueError("a bound has the wrong length for its column")
    return flat.view(f"<i{width}").reshape(-1).astype(np.int64)


def _fill(values: list[Any], missing: Any, *, ordered: bool, lowest: bool) -> list[Any]:
    """Replace missing bounds; in a sorted column by the nearest bound on the safe side."""
    filled = list(values)
    order = range(len(values)) if lowest else range(len(values) - 1, -1, -1)
    nearest = missing
    for place in order:
        if values[place] is None:
            filled[place] = nearest
        elif ordered:
            nearest = values[place]
    return filled
