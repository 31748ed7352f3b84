"""Finds a table's columns in a data file, and checks that their types agree."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

import pyarrow as pa

from sleeper.language.value_classes import dataclass
from sleeper.lookup.parquet.footer import Footer, Leaf, TopColumn

_BYTE_ARRAY, _INT32, _INT64, _FLOAT, _DOUBLE = 6, 1, 2, 4, 5
_TIMESTAMP_UNITS = {1: "ms", 2: "us", 3: "ns"}
_CONVERTED_UNITS = {9: "ms", 10: "us"}
_UNSIGNED = frozenset((11, 12, 13, 14))


class DecodePath(Enum):
    """How PLAIN pages of a column are converted to Arrow values."""

    FIXED_WIDTH = "their bytes are the values"
    BYTE_ARRAYS = "each value behind its length"
    BY_PYARROW = "through a mini-file"


@dataclass(frozen=True, slots=True)
class BoundColumn:
    """A column of the table, found in a file.

    Attributes:
        arrow_type: The type that the table's schema gives it.
        leaf: The number of its first leaf; its only one, if it is flat.
    """

    name: str
    arrow_type: pa.DataType
    column: TopColumn
    leaf: int
    plain: DecodePath


@dataclass(frozen=True, slots=True)
class WantedColumns:
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


def bind_columns(footer: Footer, schema: pa.Schema) -> dict[str, BoundColumn]:
    """Find each field of `schema` in a file.

    Raises:
        ValueError: a field is missing, or has another type in the file.
    """
    bound = {}
    for field in schema:
        column = footer.columns.get(field.name)
        if column is None:
            raise ValueError(f"it has no column {field.name!r}, which the table's schema has")
        leaf = footer.leaves[column.leaves[0]]
        plain = _plain(leaf, field.type) if column.is_flat else DecodePath.BY_PYARROW
        bound[field.name] = BoundColumn(field.name, field.type, column, column.leaves[0], plain)
    return bound


def _plain(leaf: Leaf, wanted: pa.DataType) -> DecodePath:
    """Return how to decode a flat column; raise ValueError if the file has another type."""
    physical, types = leaf.physical_type, pa.types
    if types.is_string(wanted) or types.is_binary(wanted):
        return _fits(DecodePath.BYTE_ARRAYS, leaf, wanted, when=physical == _BYTE_ARRAY)
    if types.is_int32(wanted) or types.is_date32(wanted):
        return _fits(
            DecodePath.FIXED_WIDTH, leaf, wanted, when=physical == _INT32 and _signed(leaf)
        )
    if types.is_int64(wanted):
        fits = physical == _INT64 and _signed(leaf) and _timestamp_unit(leaf) is None
        return _fits(DecodePath.FIXED_WIDTH, leaf, wanted, when=fits)
    if types.is_timestamp(wanted):
        if physical != _INT64:
            return DecodePath.BY_PYARROW
        fits = _timestamp_unit(leaf) == wanted.unit
        seconds = wanted.unit == "s" and _timestamp_unit(leaf) == "ms"
        return (
            DecodePath.BY_PYARROW
            if seconds
            else _fits(DecodePath.FIXED_WIDTH, leaf, wanted, when=fits)
        )
    if types.is_float32(wanted):
        return _fits(DecodePath.FIXED_WIDTH, leaf, wanted, when=physical == _FLOAT)
    if types.is_float64(wanted):
        return _fits(DecodePath.FIXED_WIDTH, leaf, wanted, when=physical == _DOUBLE)
    return DecodePath.BY_PYARROW


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


def _timestamp_unit(leaf: Leaf) -> str | None:
    """Return the unit of a timestamp column; None if it is not a timestamp or is contradictory."""
    converted = _CONVERTED_UNITS.get(leaf.element.get(6, -1))
    logical = (leaf.element.get(10) or {}).get(8)
    if logical is None:
        return converted
    units: dict[int, Any] = logical.get(2) or {}
    unit = _TIMESTAMP_UNITS.get(next(iter(units), -1))
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
    if not _may_cast(array.type, wanted):
        raise ValueError(f"its type is {array.type}, but the table's schema says {wanted}")
    return array.cast(wanted)


def _may_cast(found: pa.DataType, wanted: pa.DataType) -> bool:
    types = pa.types
    if types.is_timestamp(wanted):
        return bool(types.is_timestamp(found))
    if types.is_decimal(wanted) or types.is_decimal(found):
        return bool(types.is_decimal(found)) and (found.precision, found.scale) == (
            wanted.precision,
            wanted.scale,
        )
    text = (types.is_string, types.is_binary, types.is_large_string, types.is_large_binary)
    if any(is_text(found) for is_text in text):
        return any(is_text(wanted) for is_text in text)
    return False
