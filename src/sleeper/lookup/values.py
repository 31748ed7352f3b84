"""Decoded values of a few pages of one column, and how to find and take rows of them.

PLAIN pages are not decoded: fixed-width values are a numpy view, byte arrays are read in place
(`byte_arrays`). If rows are null, they have the values of other rows, and flags mark these.
Everything else is an Arrow array that pyarrow decoded. All forms return rows by position, and find
a key by bisection.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sleeper.language.value_classes import dataclass
from sleeper.lookup.parquet.levels import Flags

Ints = npt.NDArray[np.int64]
Key = int | bytes
"""A key value in comparable form: days, ticks and integers as int, strings as UTF-8 bytes."""

_FIXED: dict[int, np.dtype[Any]] = {
    1: np.dtype("<i4"),
    2: np.dtype("<i8"),
    4: np.dtype("<f4"),
    5: np.dtype("<f8"),
}


class Values(Protocol):
    """Values at positions 0 to `count` (exclusive)."""

    @property
    def count(self) -> int:
        """The number of values."""
        ...

    def find(self, key: Key, start: int, end: int) -> tuple[int, int]:
        """Return the positions [low, high) that equal `key`; those from `start` to `end` ascend."""
        ...

    def find_many(self, keys: FirstValues, first: int, end: int) -> Matches | None:
        """Find the first values of keys at places `first` to `end`, if all values ascend.

        Returns:
            None if there is no fast way: then values must be matched as Arrow values.
        """
        ...

    def rows(self, starts: Ints, ends: Ints) -> pa.Array:
        """Return the values at the positions of each [start, end), one after the other."""
        ...


@dataclass(frozen=True, slots=True)
class Matches:
    """Positions of found keys: key `places[i]` is at positions [starts[i], ends[i])."""

    starts: Ints
    ends: Ints
    places: Ints


class FirstValues(Protocol):
    """The distinct first values of many keys, ascending, in numpy's form."""

    @property
    def distinct_bounds(self) -> Sequence[npt.NDArray[Any]]:
        """As in `LookupKeys`."""
        ...

    def firsts_of_width(self, width: int) -> tuple[npt.NDArray[Any], Ints]:
        """As in `LookupKeys`."""
        ...


def find_sorted(values: npt.NDArray[Any], keys: npt.NDArray[Any], places: Ints) -> Matches:
    """Find ascending keys among ascending values of the same numpy type."""
    low = values.searchsorted(keys, "left")
    high = values.searchsorted(keys, "right")
    hit = np.flatnonzero(high > low)
    return Matches(low[hit], high[hit], places[hit])


class FixedWidthValues:
    """PLAIN values of 4 or 8 bytes each."""

    __slots__ = ("_numbers", "_type", "count")

    def __init__(
        self, data: bytes, physical_type: int, arrow_type: pa.DataType, count: int
    ) -> None:
        dtype = _FIXED[physical_type]
        if len(data) != count * dtype.itemsize:
            raise ValueError("a page holds another number of values than its header says")
        self._numbers: npt.NDArray[Any] = np.frombuffer(data, dtype)
        self._type = arrow_type
        self.count = count

    def find(self, key: Key, start: int, end: int) -> tuple[int, int]:
        """As `Values.find`."""
        part = self._numbers[start:end]
        low = start + int(part.searchsorted(key, "left"))
        if low == end or self._numbers[low] != key:
            return low, low
        return low, start + int(part.searchsorted(key, "right"))

    def find_many(self, keys: FirstValues, first: int, end: int) -> Matches | None:
        """As `Values.find_many`."""
        wanted = keys.distinct_bounds[0][first:end].astype(self._numbers.dtype)
        return find_sorted(self._numbers, wanted, np.arange(first, end))

    def rows(self, starts: Ints, ends: Ints) -> pa.Array:
        """As `Values.rows`."""
        if len(starts) == 1:
            numbers = self._numbers[starts[0] : ends[0]]
        else:
            numbers = self._numbers[positions(starts, ends)]
        buffers = [None, pa.py_buffer(numbers)]
        return pa.Array.from_buffers(self._type, len(numbers), buffers, 0)


class OptionalValues:
    """PLAIN values of pages in which some rows are null.

    Args:
        values: The values of rows that are not null.
        present: Flags of these rows.
    """

    __slots__ = ("_present", "_values", "count")

    def __init__(self, values: Values, present: Flags) -> None:
        self._values = values
        self._present = present
        self.count = len(present)

    def find(self, key: Key, start: int, end: int) -> tuple[int, int]:
        """As `Values.find`.

        Raises:
            ValueError: some of the rows are null, which keys never are.
        """
        if not self._present[start:end].all():
            raise ValueError("a row key is null")
        before = int(np.count_nonzero(self._present[:start]))
        low, high = self._values.find(key, before, before + end - start)
        return low - before + start, high - before + start

    def find_many(self, keys: FirstValues, first: int, end: int) -> Matches | None:
        """As `Values.find_many`: left to Arrow, in which a null equals no key."""
        return None

    def rows(self, starts: Ints, ends: Ints) -> pa.Array:
        """As `Values.rows`."""
        if len(starts) == 1:
            start, end = int(starts[0]), int(ends[0])
            present = self._present[start:end]
            before = int(np.count_nonzero(self._present[:start]))
            after = before + int(np.count_nonzero(present))
            dense = self._values.rows(np.array((before,)), np.array((after,)))
        else:
            present = self._present[positions(starts, ends)]
            before_each = np.concatenate(((0,), np.cumsum(self._present)))
            dense = self._values.rows(before_each[starts], before_each[ends])
        return dense if len(dense) == len(present) else with_nulls(dense, present)


def with_nulls(dense: pa.Array, present: Flags) -> pa.Array:
    """Return an array with the values of `dense`, in order, where `present`, and nulls elsewhere.

    Args:
        dense: Values of 4 or 8 bytes, strings or binary, without nulls.
        present: Flags with as many true values as `dense` has values.
    """
    count = len(present)
    if len(dense) == 0:
        return pa.nulls(count, dense.type)
    validity = pa.py_buffer(np.packbits(present, bitorder="little"))
    if pa.types.is_string(dense.type) or pa.types.is_binary(dense.type):
        _, offsets, data = dense.buffers()
        bounds = np.frombuffer(offsets, np.int32)[dense.offset :]
        spread = np.empty(count + 1, np.int32)
        spread[0] = bounds[0]
        # A null starts and ends at the end of the previous value.
        spread[1:] = bounds[np.cumsum(present)]
        buffers = [validity, pa.py_buffer(spread), data]
    else:
        bits = np.dtype(np.uint32 if dense.type.bit_width == 32 else np.uint64)
        numbers = np.zeros(count, bits)
        dense_numbers = np.frombuffer(dense.buffers()[1], bits)[dense.offset :]
        numbers[present] = dense_numbers[: len(dense)]
        buffers = [validity, pa.py_buffer(numbers)]
    return pa.Array.from_buffers(dense.type, count, buffers, count - len(dense))


class ArrowValues:
    """Values that pyarrow decoded."""

    __slots__ = ("_array", "count")

    def __init__(self, array: pa.Array) -> None:
        self._array = array
        self.count = len(array)

    def find(self, key: Key, start: int, end: int) -> tuple[int, int]:
        """As `Values.find`."""
        comparable = comparable_array(self._array)
        return bisect_values(lambda row: comparable[row].as_py(), key, start, end)

    def find_many(self, keys: FirstValues, first: int, end: int) -> Matches | None:
        """As `Values.find_many`: Arrow has no search in sorted values."""
        return None

    def rows(self, starts: Ints, ends: Ints) -> pa.Array:
        """As `Values.rows`."""
        if len(starts) == 1:
            return self._array.slice(starts[0], ends[0] - starts[0])
        return self._array.take(pa.array(positions(starts, ends)))


def comparable_array(array: pa.Array) -> pa.Array:
    """Return key values as integers or binary, whose order is the order of keys."""
    if pa.types.is_string(array.type):
        return array.view(pa.binary())
    if pa.types.is_date32(array.type):
        return array.view(pa.int32())
    return array.view(pa.int64()) if pa.types.is_timestamp(array.type) else array


def bisect_values(value_at: Callable[[int], Any], key: Any, low: int, end: int) -> tuple[int, int]:
    """Find the positions [low, high) of `key` among ascending values from `low` to `end`.

    Args:
        value_at: Returns the value at a position.
        key: What to find.
        low, end: Where to look.
    """
    high = end
    while low < high:
        middle = (low + high) >> 1
        if value_at(middle) < key:
            low = middle + 1
        else:
            high = middle
    if low == end or value_at(low) != key:
        return low, low
    # Most keys have few rows, so their end is looked for in growing steps.
    step = 1
    while low + step < end and value_at(low + step) == key:
        step *= 2
    first, high = low, min(low + step, end)
    known = low + step // 2
    while known + 1 < high:
        middle = (known + high) >> 1
        if value_at(middle) == key:
            known = middle
        else:
            high = middle
    return first, high


def positions(starts: Ints, ends: Ints) -> Ints:
    """Return every position of every [start, end), in order.

    >>> positions(np.array([1, 7]), np.array([3, 8])).tolist()
    [1, 2, 7]
    """
    if len(starts) == 1:
        return np.arange(starts[0], ends[0], dtype=np.int64)
    lengths = ends - starts
    before = np.cumsum(lengths) - lengths
    every: Ints = np.arange(lengths.sum(), dtype=np.int64) + np.repeat(starts - before, lengths)
    return every
