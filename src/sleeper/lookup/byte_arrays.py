"""Byte arrays: values of any length, read without decoding.

DELTA_LENGTH_BYTE_ARRAY has all lengths first, then the bytes of all values. In PLAIN each value is
preceded by its length, so the start of a value depends on all lengths before it. For values of one
length it is computed. For others, lengths are found by their zero bytes, which text does not
contain. This guess is verified: each value must end where the next one starts. If the guess fails,
pyarrow decodes the page.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from sleeper.lookup.parquet.mini_file import decode_byte_arrays
from sleeper.lookup.parquet.page_index import BOUND_WIDTH_MAX
from sleeper.lookup.values import (
    ArrowValues,
    FirstValues,
    Ints,
    Key,
    Matches,
    bisect_values,
    find_sorted,
    positions,
)

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

    def find(self, key: Key, start: int, end: int) -> tuple[int, int]:
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

    def find(self, key: Key, start: int, end: int) -> tuple[int, int]:
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
    """Byte arrays of many lengths, one after the other.

    Args:
        data: Their bytes.
        lengths: The length of each; they add up to those of `data`.
        arrow_type: string or binary.
    """

    __slots__ = ("_data", "_ends", "_type", "count")

    def __init__(self, data: bytes, lengths: Ints, arrow_type: pa.DataType) -> None:
        self._data = data
        self._ends = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=self._ends[1:])
        self._type = arrow_type
        self.count = len(lengths)

    def find(self, key: Key, start: int, end: int) -> tuple[int, int]:
        """As `Values.find`."""
        data, ends = self._data, self._ends
        return bisect_values(lambda row: data[ends[row] : ends[row + 1]], key, start, end)

    def find_many(self, keys: FirstValues, first: int, end: int) -> Matches | None:
        """As `Values.find_many`: numpy has no fast search for values of different lengths."""
        return None

    def rows(self, starts: Ints, ends: Ints) -> pa.Array:
        """As `Values.rows`."""
        if len(starts) == 1:
            start, end = int(starts[0]), int(ends[0])
            first, last = int(self._ends[start]), int(self._ends[end])
            offsets = (self._ends[start : end + 1] - first).astype(np.int32)
            buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self._data[first:last])]
            return pa.Array.from_buffers(self._type, end - start, buffers, 0)
        # Offsets of 64 bits, because all pages together may have more than 2 GiB.
        buffers = [None, pa.py_buffer(self._ends), pa.py_buffer(self._data)]
        every = pa.Array.from_buffers(pa.large_binary(), self.count, buffers, 0)
        kind = pa.binary() if pa.types.is_binary(self._type) else pa.string()
        return every.take(pa.array(positions(starts, ends))).cast(pa.binary()).view(kind)


def joined_byte_arrays(
    data: bytes, lengths: int | Ints, count: int, arrow_type: pa.DataType
) -> EvenByteArrays | JoinedByteArrays:
    """View byte arrays without lengths between them; `lengths` is a number if all are equal."""
    if isinstance(lengths, int):
        if lengths and count:
            return EvenByteArrays(data, count, arrow_type, prefix=0)
        lengths = np.zeros(count, np.int64)
    return JoinedByteArrays(data, lengths, arrow_type)


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

    def find(self, key: Key, start: int, end: int) -> tuple[int, int]:
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
