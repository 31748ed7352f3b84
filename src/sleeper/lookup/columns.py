"""Finds a table's columns in a data file, and checks that their types agree."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sleeper.columns.type_traits import KEY_ITEMS, NARROWER_BY_ID, TRAITS_BY_ID, TimeMark
from sleeper.lookup.parquet.footer import VALUE_WIDTHS, Footer, Leaf, TopColumn
from sleeper.lookup.parquet.pages import Flags

_UNITS = {1: "ms", 2: "us", 3: "ns"}
_MARKS = {id(row.mark): row.mark for row in TRAITS_BY_ID.values() if row.mark is not None}.values()
_UNSIGNED = frozenset((11, 12, 13, 14))


class DecodePath(Enum):
    """How PLAIN pages of a column are converted to Arrow values."""

    FIXED_WIDTH = "their bytes are the values"
    BYTE_ARRAYS = "each value behind its length"
    DECIMALS = "integers, which become decimals"
    BY_PYARROW = "through a mini-file"


_PATHS = {
    physical: DecodePath.FIXED_WIDTH if physical in VALUE_WIDTHS else DecodePath.BY_PYARROW
    for physical in range(8)
} | {6: DecodePath.BYTE_ARRAYS}
"""By Parquet's number of the physical type."""


class FieldInFiles(NamedTuple):
    """How files that were written before a change of columns have a field of the table.

    Attributes:
        id: Its id in files that have ids.
        first_name: Its name in files without ids; None if they do not have it.
        default: Its value in files that do not have it, of its type; a null if it has none.
    """

    id: int
    first_name: str | None
    default: pa.Scalar


class BoundColumn(NamedTuple):
    """A column of the table, found in a file.

    Attributes:
        name: Its name in the table.
        arrow_type: The type of its values in the file.
        leaf: The number of its first leaf; its only one, if it is flat. -1 if the file lacks it.
        wider: The type that the table's schema gives it, if that is another than the file's.
        default: The value of all rows, if the file lacks it.
    """

    name: str
    arrow_type: pa.DataType
    column: TopColumn
    leaf: int
    plain: DecodePath
    wider: pa.DataType | None = None
    default: pa.Scalar | None = None

    @property
    def is_as_stored(self) -> bool:
        """True if the file has the column as the table's schema says."""
        return self.wider is None and self.default is None


class WantedColumns(NamedTuple):
    """The columns of a file that a look-up needs.

    Attributes:
        keys: The row key columns.
        values: The other columns that are wanted.
        leaves: Leaves of all of them.
        key_leaves: The leaf of each row key.
    """

    keys: tuple[BoundColumn, ...]
    values: tuple[BoundColumn, ...]
    leaves: tuple[int, ...]
    key_leaves: tuple[int, ...]


def want_columns(
    bound: dict[str, BoundColumn], key_names: Sequence[str], names: Sequence[str]
) -> WantedColumns:
    """Choose columns by name; row keys are not read again as values."""
    keys = tuple(bound[name] for name in key_names)
    values = tuple(bound[name] for name in names if name not in key_names)
    leaves = tuple(leaf for each in (*keys, *values) for leaf in each.column.leaves)
    return WantedColumns(keys, values, leaves, tuple(each.leaf for each in keys))


def bind_columns(
    footer: Footer, schema: pa.Schema, fields: Mapping[str, FieldInFiles] | None = None
) -> dict[str, BoundColumn]:
    """Find each field of `schema` in a file.

    Args:
        footer: The file's.
        schema: The table's.
        fields: How files have the fields, by name, once the columns of the table were changed. None
            if they were not: then a file has each field by its name.

    Raises:
        ValueError: a field is missing, or has another type in the file.
    """
    if fields is None:
        return {
            field.name: _bound(footer, field, None, footer.columns.get(field.name))
            for field in schema
        }
    by_id = {each.field_id: each for each in footer.columns.values()}
    has_ids = by_id.keys() != {None}
    found = {}
    for field in schema:
        known = fields[field.name]
        column = by_id.get(known.id) if has_ids else footer.columns.get(known.first_name or "")
        found[field.name] = _bound(footer, field, known, column)
    return found


def _bound(
    footer: Footer, field: pa.Field, known: FieldInFiles | None, column: TopColumn | None
) -> BoundColumn:
    if column is None:
        if known is None:
            raise ValueError(f"it has no column {field.name!r}, which the table's schema has")
        nothing = TopColumn(field.name, range(0), (), is_flat=True)
        return BoundColumn(
            field.name, field.type, nothing, -1, DecodePath.BY_PYARROW, default=known.default
        )
    leaf = footer.leaves[column.leaves[0]]
    narrower = None if known is None or not column.is_flat else _narrower(leaf, field.type)
    kind = narrower or field.type
    plain = _plain(leaf, kind) if column.is_flat else DecodePath.BY_PYARROW
    wider = None if narrower is None else field.type
    return BoundColumn(field.name, kind, column, column.leaves[0], plain, wider)


def _narrower(leaf: Leaf, wanted: pa.DataType) -> pa.DataType | None:
    """Return the type of a column that was written before its field became wider, or None."""
    row = NARROWER_BY_ID.get(wanted.id)
    if row is not None and leaf.physical_type == row.physical:
        return row.arrow
    if pa.types.is_decimal(wanted) and leaf.element.get(_CONVERTED) == _DECIMAL:
        precision, scale = leaf.element.get(_PRECISION, 0), leaf.element.get(_SCALE, 0)
        if scale == wanted.scale and precision < wanted.precision:
            return pa.decimal128(precision, scale)
    return None


def stored_columns(columns: Iterable[BoundColumn]) -> list[BoundColumn]:
    """Return the columns that a file has, as it has them."""
    return [column._replace(wider=None) for column in columns if column.default is None]


def as_in_table(
    columns: Iterable[BoundColumn], stored: Iterable[pa.Array], row_count: int
) -> list[pa.Array]:
    """Return columns as the table's schema has them.

    Args:
        columns: The columns.
        stored: The values of those that the file has (`stored_columns`), in their order.
        row_count: How many rows there are.
    """
    left = iter(stored)
    arrays = []
    for column in columns:
        if column.default is not None:
            arrays.append(pa.repeat(column.default, row_count))
        else:
            array = next(left)
            arrays.append(array if column.wider is None else array.cast(column.wider))
    return arrays


def _plain(leaf: Leaf, wanted: pa.DataType) -> DecodePath:
    """Return how to decode a flat column; raise ValueError if the file has another type."""
    if pa.types.is_decimal(wanted):
        return DecodePath.DECIMALS if _holds_decimal(leaf, wanted) else DecodePath.BY_PYARROW
    traits = TRAITS_BY_ID.get(wanted.id)
    plain = DecodePath.BY_PYARROW if traits is None else _PATHS[traits.physical]
    if traits is None or plain is DecodePath.BY_PYARROW:
        return DecodePath.BY_PYARROW
    fits = leaf.physical_type == traits.physical
    if traits.mark is not None:
        unit = _unit(leaf, traits.mark)
        if not fits or (wanted.unit == "s" and unit == "ms"):
            return DecodePath.BY_PYARROW
        fits = unit == wanted.unit
    elif plain is DecodePath.FIXED_WIDTH:
        fits = fits and _signed(leaf) and all(_unit(leaf, mark) is None for mark in _MARKS)
    return _fits(plain, leaf, wanted, when=fits)


def _holds_decimal(leaf: Leaf, wanted: pa.DataType) -> bool:
    """Return whether a column has the integers of a decimal type, by its older annotation."""
    element = leaf.element
    return (
        leaf.physical_type in _INTEGERS
        and element.get(_CONVERTED) == _DECIMAL
        and (element.get(_PRECISION), element.get(_SCALE, 0)) == (wanted.precision, wanted.scale)
    )


_INTEGERS = (1, 2)
_CONVERTED, _SCALE, _PRECISION = 6, 7, 8
_DECIMAL = 5
"""Numbers of Parquet: physical types, fields of a schema element, a converted type."""


def _fits(plain: DecodePath, leaf: Leaf, wanted: pa.DataType, *, when: bool) -> DecodePath:
    if not when:
        raise ValueError(
            f"its column {leaf.path[0]!r} is of another type than the table's schema says: {wanted}"
        )
    return plain


def _signed(leaf: Leaf) -> bool:
    integer = (leaf.element.get(10) or {}).get(10)
    if integer is not None and integer.get(2) is False:
        return False
    return leaf.element.get(6) not in _UNSIGNED


def _unit(leaf: Leaf, mark: TimeMark) -> str | None:
    """Return the unit of a column of times; None if it has no such mark, or contradictory ones."""
    converted = mark.converted.get(leaf.element.get(6, -1))
    logical = (leaf.element.get(10) or {}).get(mark.logical)
    if logical is None:
        return converted
    units: dict[int, Any] = logical.get(2) or {}
    unit = _UNITS.get(next(iter(units), -1))
    return unit if converted in (None, unit) else None


def as_type(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Convert a decoded array to the table's type; only names and annotations may differ.

    Raises:
        ValueError: the file's type is different.
    """
    if array.type.equals(wanted):
        return array
    types = pa.types
    if types.is_list(wanted) and types.is_list(array.type):
        # The values are rebuilt with the same offsets, because a cast requires equal field
        # names.
        values = as_type(array.values, wanted.value_type)
        return pa.Array.from_buffers(
            wanted, len(array), array.buffers()[:2], offset=array.offset, children=[values]
        )
    if types.is_map(wanted) and types.is_map(array.type):
        keys = as_type(array.keys, wanted.key_type)
        items = as_type(array.items, wanted.item_type)
        entries = pa.StructArray.from_arrays(
            [keys, items], fields=[wanted.key_field, wanted.item_field]
        )
        return pa.Array.from_buffers(
            wanted, len(array), array.buffers()[:2], offset=array.offset, children=[entries]
        )
    if types.is_struct(wanted) and types.is_struct(array.type):
        if array.type.names != wanted.names:
            raise ValueError(f"its type is {array.type}, but the table's schema says {wanted}")
        children = [as_type(array.field(at), part.type) for at, part in enumerate(wanted.fields)]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(children, fields=wanted.fields, mask=mask)
    if not _may_cast(array.type, wanted):
        raise ValueError(f"its type is {array.type}, but the table's schema says {wanted}")
    return array.cast(wanted)


def _may_cast(found: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_decimal(wanted) or pa.types.is_decimal(found):
        return bool(pa.types.is_decimal(found)) and (found.precision, found.scale) == (
            wanted.precision,
            wanted.scale,
        )
    traits = TRAITS_BY_ID.get(wanted.id)
    return traits is not None and bool(traits.renamed_from(found))


# ---------------------------------------------------------------- values
#
# Decoded values of a few pages of one column, and how to find and take rows of them.
#
# PLAIN pages are not decoded: fixed-width values are a numpy view, byte arrays are read in place
# (`byte_arrays`). If rows are null, they have the values of other rows, and flags mark these.
# Everything else is an Arrow array that pyarrow decoded. All forms return rows by position, and
# find a key by bisection.

Ints = npt.NDArray[np.int64]
KeyItem = int | bytes
"""A key value in comparable form: days, ticks and integers as int, strings as UTF-8 bytes."""

FIXED_WIDTHS: dict[int, np.dtype[Any]] = {
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

    def find(self, key: KeyItem, start: int, end: int) -> tuple[int, int]:
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


class Matches(NamedTuple):
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
        dtype = FIXED_WIDTHS[physical_type]
        if len(data) != count * dtype.itemsize:
            raise ValueError("a page holds another number of values than its header says")
        self._numbers: npt.NDArray[Any] = np.frombuffer(data, dtype)
        self._type = arrow_type
        self.count = count

    def find(self, key: KeyItem, start: int, end: int) -> tuple[int, int]:
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

    def find(self, key: KeyItem, start: int, end: int) -> tuple[int, int]:
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


class DecimalValues:
    """Integers that are decimals without their point.

    Args:
        values: The integers, as int32 or int64.
        arrow_type: A decimal of 128 bits.
    """

    __slots__ = ("_type", "_values", "count")

    def __init__(self, values: Values, arrow_type: pa.DataType) -> None:
        self._values = values
        self._type = arrow_type
        self.count = values.count

    def find(self, key: KeyItem, start: int, end: int) -> tuple[int, int]:
        """As `Values.find`."""
        return self._values.find(key, start, end)

    def find_many(self, keys: FirstValues, first: int, end: int) -> Matches | None:
        """As `Values.find_many`."""
        return self._values.find_many(keys, first, end)

    def rows(self, starts: Ints, ends: Ints) -> pa.Array:
        """As `Values.rows`."""
        integers = self._values.rows(starts, ends)
        if integers.null_count == len(integers):
            return pa.nulls(len(integers), self._type)
        dtype = np.int32 if integers.type.bit_width == 32 else np.int64
        validity, data = integers.buffers()
        halves = np.empty((len(integers), 2), np.int64)
        halves[:, 0] = np.frombuffer(data, dtype, len(integers))
        halves[:, 1] = halves[:, 0] >> 63
        buffers = [validity, pa.py_buffer(halves)]
        return pa.Array.from_buffers(self._type, len(integers), buffers, integers.null_count)


class ArrowValues:
    """Values that pyarrow decoded."""

    __slots__ = ("_array", "count")

    def __init__(self, array: pa.Array) -> None:
        self._array = array
        self.count = len(array)

    def find(self, key: KeyItem, start: int, end: int) -> tuple[int, int]:
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
    items = KEY_ITEMS.get(array.type.id)
    return array if items is None else array.view(items)


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
