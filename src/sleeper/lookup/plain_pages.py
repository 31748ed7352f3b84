"""The content of pages of a flat column: decompressed, without levels, as PLAIN or nearly so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from sleeper.lookup.columns import (
    ArrowValues,
    FirstValues,
    Ints,
    KeyItem,
    Matches,
    bisect_values,
    find_sorted,
    positions,
)
from sleeper.lookup.parquet.delta import read_lengths, read_numbers
from sleeper.lookup.parquet.footer import CODECS, VALUE_WIDTHS, ColumnChunk, Leaf
from sleeper.lookup.parquet.mini_file import decode_byte_arrays
from sleeper.lookup.parquet.page_index import BOUND_WIDTH_MAX
from sleeper.lookup.parquet.pages import (
    DATA_PAGE_V2,
    DELTA_BINARY_PACKED,
    DELTA_LENGTH_BYTE_ARRAY,
    DICTIONARY_PAGE,
    OWN_CODECS,
    PLAIN,
    Flags,
    Page,
    decompress,
    decompressed,
    present_rows,
)

_DELTAS = frozenset((DELTA_BINARY_PACKED, DELTA_LENGTH_BYTE_ARRAY))
"""Encodings that this module reads of version 2 pages, beside PLAIN of all; some writers pad the
levels of version 1 pages in their own way."""


class PlainPages(NamedTuple):
    """The concatenated content of pages of a flat column, as PLAIN has it or nearly so.

    Attributes:
        data: The values that are not null: as PLAIN encodes them, or byte arrays without lengths.
        value_count: Their number.
        present: Which rows have a value; None if all have one.
        lengths: Of byte arrays without lengths, a number if all are equal; None if `data` is PLAIN.
        starts, counts: Where the values of each page begin, and their number, if something is
            between the pages; else None.
    """

    data: bytes
    value_count: int
    present: Flags | None
    lengths: int | Ints | None
    starts: Ints | None = None
    counts: Ints | None = None


def plain_values(
    pages: Sequence[Page], chunk: ColumnChunk, leaf: Leaf, needed: int | None = None
) -> PlainPages | None:
    """Decompress pages and read their levels; None if a page has an encoding of pyarrow's alone.

    Of a single page the values after the first `needed` rows may be left out. The value counts of
    pages must be compared with the offset index before.

    Raises:
        ValueError, OSError: a page is damaged.
    """
    if chunk.codec not in OWN_CODECS or leaf.repetition_max or leaf.definition_max > 1:
        return None
    pages = [page for page in pages if page.kind != DICTIONARY_PAGE]
    if not pages:
        return None
    encoding = pages[0].encoding
    own = encoding == PLAIN or (encoding in _DELTAS and all(p.kind == DATA_PAGE_V2 for p in pages))
    if not own or any(page.encoding != encoding for page in pages):
        return None
    if len(pages) == 1:
        return _plain_page(pages[0], chunk.codec, leaf, needed)
    together = _decompressed_together(pages, chunk, leaf)
    if together is not None:
        return together
    parts = [_plain_page(page, chunk.codec, leaf) for page in pages]
    present = None
    if any(part.present is not None for part in parts):
        flags = [
            np.ones(part.value_count, np.bool_) if part.present is None else part.present
            for part in parts
        ]
        present = np.concatenate(flags)
    data = b"".join([part.data for part in parts])
    return PlainPages(data, sum(part.value_count for part in parts), present, _all_lengths(parts))


def _decompressed_together(
    pages: Sequence[Page], chunk: ColumnChunk, leaf: Leaf
) -> PlainPages | None:
    """Decompress pages without nulls in one call; None if they are not of the usual kind.

    zstd reads frames that follow each other; for each call it makes a context, which takes as long
    as 10,000 bytes.
    """
    if CODECS[chunk.codec] != "zstd" or pages[0].encoding == DELTA_BINARY_PACKED:
        return None
    bodies: list[memoryview] = []
    ends = [0]
    for page in pages:
        levels = page.levels_sizes[1]
        if (
            page.kind != DATA_PAGE_V2
            or not page.is_compressed
            or page.null_count
            or page.levels_sizes[0]
            or (levels > 0) != (leaf.definition_max > 0)
        ):
            return None
        if levels and present_rows(bytes(page.body[:levels]), page.value_count) is not None:
            return None
        bodies.append(page.body[levels:])
        ends.append(ends[-1] + page.uncompressed_size - levels)
    data = decompress("zstd", memoryview(b"".join(bodies)), ends[-1])
    counts = [page.value_count for page in pages]
    if pages[0].encoding == PLAIN:
        width = VALUE_WIDTHS.get(leaf.physical_type)
        if width is not None and len(data) != sum(counts) * width:
            raise ValueError("a page holds another number of values than its header says")
        return PlainPages(data, sum(counts), None, None)
    if leaf.physical_type != _BYTE_ARRAY:
        raise ValueError("a page's numbers are encoded as byte arrays")
    places = zip(counts, ends, ends[1:], strict=False)
    lengths = [read_lengths(data, count, start, end) for count, start, end in places]
    starts = np.array([start for _, start in lengths], np.int64)
    whole = _joined([each for each, _ in lengths], counts)
    return PlainPages(data, sum(counts), None, whole, starts, np.array(counts, np.int64))


def _all_lengths(parts: Sequence[PlainPages]) -> int | Ints | None:
    """Return the lengths of the byte arrays of several pages."""
    lengths = [part.lengths for part in parts if part.lengths is not None]
    return _joined(lengths, [part.value_count for part in parts]) if lengths else None


def _joined(lengths: Sequence[int | Ints], counts: Sequence[int]) -> int | Ints:
    """Join the lengths of pages; a number if all are equal."""
    first = lengths[0]
    if isinstance(first, int) and all(isinstance(each, int) and each == first for each in lengths):
        return first
    whole: Ints = np.concatenate(
        [
            np.full(count, each) if isinstance(each, int) else each
            for each, count in zip(lengths, counts, strict=True)
        ]
    )
    return whole


class PageValues(NamedTuple):
    """The values of one page, as they are encoded.

    Attributes:
        values: Their bytes.
        value_count: How many there are, without nulls.
        present: Which rows have one, of the first that were asked for; None if all these have.
        needed: How many values these rows have.
    """

    values: bytes
    value_count: int
    present: Flags | None
    needed: int


def page_values(page: Page, body: bytes, leaf: Leaf, needed: int | None = None) -> PageValues:
    """Divide the body of a page, which is decompressed, into levels and values.

    Args:
        page: The page.
        body: Its body.
        leaf: Its column.
        needed: How many of its first rows are wanted; all if None. Levels of others are not looked
            at if the header says how many nulls there are.

    Raises:
        ValueError: they do not fit the header.
    """
    levels, values = _levels_and_values(page, body, leaf)
    rows, nulls = page.value_count, page.null_count
    if needed is not None and needed < rows and nulls is not None:
        if not 0 <= nulls <= rows:
            raise ValueError("a page has another number of nulls than its header says")
        present = present_rows(levels, rows, needed) if leaf.definition_max else None
        found = needed if present is None else int(np.count_nonzero(present))
        return PageValues(values, rows - nulls, present, found)
    present = None
    if leaf.definition_max:
        present = present_rows(levels, rows)
    elif levels:
        raise ValueError("a page has levels, but its column has no nulls")
    count = rows if present is None else int(np.count_nonzero(present))
    if nulls not in (None, rows - count):
        raise ValueError("a page has another number of nulls than its header says")
    return PageValues(values, count, present, count)


def _plain_page(page: Page, codec: int, leaf: Leaf, needed: int | None = None) -> PlainPages:
    values, count, present, found = page_values(page, decompressed(page, codec), leaf, needed)
    lengths: int | Ints | None = None
    width = VALUE_WIDTHS.get(leaf.physical_type, 0)
    if page.encoding == DELTA_LENGTH_BYTE_ARRAY:
        if leaf.physical_type != _BYTE_ARRAY:
            raise ValueError("a page's numbers are encoded as byte arrays")
        lengths, at = read_lengths(values, count)
        values = values[at:]
    elif page.encoding == DELTA_BINARY_PACKED:
        values = read_numbers(values, count, width, found)
        count = found
    if width and len(values) != count * width:
        raise ValueError("a page holds another number of values than its header says")
    return PlainPages(values, count, present, lengths)


def _levels_and_values(page: Page, values: bytes, leaf: Leaf) -> tuple[bytes, bytes]:
    """Return the definition levels of a page and its values."""
    if page.kind == DATA_PAGE_V2:
        if page.levels_sizes[0]:
            raise ValueError("a page has repetition levels, but its column is no list")
        return bytes(page.body[: page.levels_sizes[1]]), values
    if not leaf.definition_max:
        return b"", values
    length = int.from_bytes(values[:4], "little")
    levels, values = values[4 : 4 + length], values[4 + length :]
    if len(levels) != length:
        raise ValueError("a page's levels are longer than the page")
    return levels, values


_BYTE_ARRAY = 6


# ---------------------------------------------------------------- byte arrays
#
# Byte arrays: values of any length, read without decoding.
#
# DELTA_LENGTH_BYTE_ARRAY has all lengths first, then the bytes of all values. In PLAIN each value
# is preceded by its length, so the start of a value depends on all lengths before it. For values
# of one length it is computed. For others, lengths are found by their zero bytes, which text does
# not contain. This guess is verified: each value must end where the next one starts. If the guess
# fails, pyarrow decodes the page.

_PREFIX_BYTES = 4


class PlainByteArrays:
    """PLAIN byte arrays. Their starts are computed at first use.

    Args:
        data: The values with their lengths.
        count: How many there are.
        arrow_type: string or binary.
    """

    __slots__ = ("_data", "_type", "_view", "count")

    def __init__(self, data: bytes, count: int, arrow_type: pa.DataType) -> None:
        self._data = data
        self._type = arrow_type
        self._view: EvenByteArrays | ByteArrayView | ArrowValues | None = None
        self.count = count

    def find(self, key: KeyItem, start: int, end: int) -> tuple[int, int]:
        """As `Values.find`."""
        # Most pages that may contain a key do not: then its bytes do not occur in the page.
        if (
            isinstance(key, bytes)
            and len(key).to_bytes(_PREFIX_BYTES, "little") + key not in self._data
        ):
            return start, start
        return self._viewed().find(key, start, end)

    def find_many(self, keys: FirstValues, first: int, end: int) -> Matches | None:
        """As `Values.find_many`."""
        return self._viewed().find_many(keys, first, end)

    def rows(self, starts: Ints, ends: Ints) -> pa.Array:
        """As `Values.rows`."""
        return self._viewed().rows(starts, ends)

    def _viewed(self) -> EvenByteArrays | ByteArrayView | ArrowValues:
        if self._view is None:
            self._view = view_byte_arrays(self._data, self.count, self._type)
        return self._view


class EvenByteArrays:
    """Byte arrays of one width, each after a prefix of some bytes, usually its length."""

    __slots__ = ("_data", "_prefix", "_stride", "_type", "count")

    def __init__(
        self, data: bytes, count: int, arrow_type: pa.DataType, prefix: int = _PREFIX_BYTES
    ) -> None:
        self._data = data
        self._prefix = prefix
        self._stride = len(data) // count
        self._type = arrow_type
        self.count = count

    def find(self, key: KeyItem, start: int, end: int) -> tuple[int, int]:
        """As `Values.find`."""
        data, stride, prefix = self._data, self._stride, self._prefix
        return bisect_values(
            lambda row: data[row * stride + prefix : (row + 1) * stride], key, start, end
        )

    def find_many(self, keys: FirstValues, first: int, end: int) -> Matches | None:
        """As `Values.find_many`."""
        width = self._stride - self._prefix
        if not 0 < width <= BOUND_WIDTH_MAX:
            return None
        wanted, places = keys.firsts_of_width(width)
        part = slice(*places.searchsorted((first, end)))
        strides = (self._stride,)
        values = np.ndarray((self.count,), f"S{width}", self._data, self._prefix, strides)
        return find_sorted(np.ascontiguousarray(values), wanted[part], places[part])

    def rows(self, starts: Ints, ends: Ints) -> pa.Array:
        """As `Values.rows`."""
        width = self._stride - self._prefix
        square = np.frombuffer(self._data, np.uint8).reshape(self.count, self._stride)
        if len(starts) == 1:
            chosen = square[starts[0] : ends[0], self._prefix :]
        else:
            chosen = square[positions(starts, ends), self._prefix :]
        if width == 0:
            offsets = np.zeros(len(chosen) + 1, np.int32)
        else:
            offsets = np.arange(0, len(chosen) * width + 1, width, dtype=np.int32)
        data = pa.py_buffer(np.ascontiguousarray(chosen))
        buffers = [None, pa.py_buffer(offsets), data]
        return pa.Array.from_buffers(self._type, len(chosen), buffers, 0)


class JoinedByteArrays:
    """Byte arrays of a page one after the other, without lengths between them; of several pages.

    Args:
        data: Their bytes.
        lengths: The length of each, or of all.
        starts: Where the values of each page begin in `data`.
        counts: The number of values of each page.
        arrow_type: string or binary.
    """

    __slots__ = ("_data", "_ends", "_firsts", "_lengths", "_shifts", "_type", "count")

    def __init__(
        self, data: bytes, lengths: int | Ints, starts: Ints, counts: Ints, arrow_type: pa.DataType
    ) -> None:
        self._data = data
        self._type = arrow_type
        self._lengths = lengths
        self._firsts = np.cumsum(counts) - counts
        self.count = int(counts.sum())
        self._ends = None if isinstance(lengths, int) else np.cumsum(lengths)
        if isinstance(lengths, int):
            before = self._firsts * lengths
        else:
            before = np.concatenate(([0], np.cumsum(lengths)))[self._firsts]
        self._shifts: Ints = starts - before

    def _places(self, rows: Ints) -> tuple[Ints, Ints]:
        """Return where values start and end in `data`."""
        shifts = self._shifts[self._firsts.searchsorted(rows, "right") - 1]
        if isinstance(self._lengths, int):
            starts = rows * self._lengths + shifts
            return starts, starts + self._lengths
        assert self._ends is not None
        ends = self._ends[rows] + shifts
        return ends - self._lengths[rows], ends

    def find(self, key: KeyItem, start: int, end: int) -> tuple[int, int]:
        """As `Values.find`."""

        def value_at(row: int) -> bytes:
            (first,), (last,) = self._places(np.array((row,)))
            return self._data[first:last]

        return bisect_values(value_at, key, start, end)

    def find_many(self, keys: FirstValues, first: int, end: int) -> Matches | None:
        """As `Values.find_many`: numpy has no fast search for values of different lengths."""
        return None

    def rows(self, starts: Ints, ends: Ints) -> pa.Array:
        """As `Values.rows`."""
        if len(starts) == 1:
            return self._one_range(int(starts[0]), int(ends[0]))
        chosen = positions(starts, ends)
        if not len(chosen):
            return pa.nulls(0, self._type)
        firsts, lasts = self._places(chosen)
        # A value, the bytes up to the next one, and so on, as elements of one Arrow array.
        interleaved = np.empty(2 * len(firsts) + 1, np.int64)
        interleaved[0:-1:2] = firsts
        interleaved[1::2] = lasts
        interleaved[-1] = lasts[-1]
        buffers = [None, pa.py_buffer(interleaved), pa.py_buffer(self._data)]
        every = pa.Array.from_buffers(pa.large_binary(), 2 * len(firsts), buffers, 0)
        kind = pa.binary() if pa.types.is_binary(self._type) else pa.string()
        values = every.take(pa.array(np.arange(0, 2 * len(firsts), 2)))
        return values.cast(pa.binary()).view(kind)

    def _one_range(self, start: int, end: int) -> pa.Array:
        """Join the bytes of consecutive values, which are together in each page."""
        if start == end:
            return pa.nulls(0, self._type)
        first, last = self._firsts.searchsorted((start, end - 1), "right").tolist()
        lows = np.maximum(self._firsts[first - 1 : last], start)
        highs = np.append(lows[1:], end)
        from_bytes, _ = self._places(lows)
        _, to_bytes = self._places(highs - 1)
        runs = zip(from_bytes.tolist(), to_bytes.tolist(), strict=True)
        data = b"".join([self._data[low:high] for low, high in runs])
        offsets = np.zeros(end - start + 1, np.int32)
        lengths = self._lengths
        some = lengths if isinstance(lengths, int) else lengths[start:end]
        offsets[1:] = some
        np.cumsum(offsets, out=offsets)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        return pa.Array.from_buffers(self._type, end - start, buffers, 0)


def joined_byte_arrays(
    found: PlainPages, arrow_type: pa.DataType
) -> EvenByteArrays | JoinedByteArrays:
    """View byte arrays without lengths between them."""
    lengths, starts, counts = found.lengths, found.starts, found.counts
    assert lengths is not None
    if starts is None or counts is None:
        if isinstance(lengths, int) and lengths and found.value_count:
            return EvenByteArrays(found.data, found.value_count, arrow_type, prefix=0)
        starts, counts = np.zeros(1, np.int64), np.array((found.value_count,))
    return JoinedByteArrays(found.data, lengths, starts, counts, arrow_type)


class ByteArrayView:
    """Byte arrays of many widths.

    Args:
        data: The values with their lengths.
        prefixes: The position of each length, and at the end the length of `data`.
        arrow_type: string or binary.
    """

    __slots__ = ("_data", "_prefixes", "_type", "count")

    def __init__(self, data: bytes, prefixes: Ints, arrow_type: pa.DataType) -> None:
        self._data = data
        self._prefixes = prefixes
        self._type = arrow_type
        self.count = len(prefixes) - 1

    def find(self, key: KeyItem, start: int, end: int) -> tuple[int, int]:
        """As `Values.find`."""
        data, prefixes = self._data, self._prefixes
        return bisect_values(
            lambda row: data[prefixes[row] + _PREFIX_BYTES : prefixes[row + 1]], key, start, end
        )

    def find_many(self, keys: FirstValues, first: int, end: int) -> Matches | None:
        """As `Values.find_many`: numpy has no fast search for values of different lengths."""
        return None

    def rows(self, starts: Ints, ends: Ints) -> pa.Array:
        """As `Values.rows`."""
        if len(starts) == 1:
            return self._one_range(int(starts[0]), int(ends[0]))
        # Lengths and values alternate as elements of one Arrow array over the bytes of the page.
        interleaved = np.empty(2 * self.count + 1, np.int32)
        interleaved[0::2] = self._prefixes
        interleaved[1::2] = self._prefixes[:-1] + _PREFIX_BYTES
        buffers = [None, pa.py_buffer(interleaved), pa.py_buffer(self._data)]
        every = pa.Array.from_buffers(self._type, 2 * self.count, buffers, 0)
        return every.take(pa.array(2 * positions(starts, ends) + 1))

    def _one_range(self, start: int, end: int) -> pa.Array:
        """Copy the bytes of consecutive values, without their lengths."""
        first, last = int(self._prefixes[start]), int(self._prefixes[end])
        prefixes = self._prefixes[start : end + 1] - first
        every = np.frombuffer(self._data, np.uint8, last - first, first)
        kept = np.ones(last - first, np.bool_)
        for place in range(_PREFIX_BYTES):
            kept[prefixes[:-1] + place] = False
        offsets = (prefixes - _PREFIX_BYTES * np.arange(end - start + 1)).astype(np.int32)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(every[kept])]
        return pa.Array.from_buffers(self._type, end - start, buffers, 0)


def view_byte_arrays(
    data: bytes, count: int, arrow_type: pa.DataType
) -> EvenByteArrays | ByteArrayView | ArrowValues:
    """View PLAIN byte arrays.

    Raises:
        ValueError, OSError: the lengths do not match the positions of values and the end.
    """
    if _are_even(data, count):
        return EvenByteArrays(data, count, arrow_type)
    prefixes = _prefixes_by_zero_bytes(data, count)
    if prefixes is not None:
        return ByteArrayView(data, prefixes, arrow_type)
    return ArrowValues(decode_byte_arrays(data, count).view(arrow_type))


def _are_even(data: bytes, count: int) -> bool:
    """Return whether all values have the length of the first."""
    if count == 0 or len(data) < _PREFIX_BYTES:
        return False
    stride = int.from_bytes(data[:_PREFIX_BYTES], "little") + _PREFIX_BYTES
    if stride * count != len(data):
        return False
    lengths = np.ndarray((count,), "S4", data, 0, (stride,)).tobytes()
    return lengths == data[:_PREFIX_BYTES] * count


def _prefixes_by_zero_bytes(data: bytes, count: int) -> Ints | None:
    """Guess that three zero bytes in a row occur only in the lengths: so it is with text of 1 to
    255 bytes.

    Returns:
        Where the lengths are, and the length of `data`; None if the guess is wrong.
    """
    if len(data) <= _PREFIX_BYTES * count or count == 0:
        return None
    zero = np.frombuffer(data, np.uint8) == 0
    places = zero[1:-2] & zero[2:-1] & zero[3:]
    if np.count_nonzero(places) != count:
        return None
    prefixes = np.empty(count + 1, np.int64)
    prefixes[:-1] = np.flatnonzero(places)
    prefixes[-1] = len(data)
    # The upper bytes of each length are zero, so its lowest byte is the length.
    lengths = np.frombuffer(data, np.uint8)[prefixes[:-1]]
    is_chain = prefixes[0] == 0 and (np.diff(prefixes) - _PREFIX_BYTES == lengths).all()
    return prefixes if is_chain else None
