"""The keys of one look-up: from what a caller gives, to the forms in which pages are searched.

1. `one_key_batch` and `key_batch` make one RecordBatch of row keys: checked, sorted, distinct
2. `LookupKeys` has their values in the forms of bounds, filters and pages, each made at first use
3. `PossibleKeys` are those that one row group may hold
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from struct import pack
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.columns.any_values import checked_column
from sleeper.columns.type_traits import key_traits_of
from sleeper.errors import QueryInvalid
from sleeper.lookup.columns import Ints, KeyItem, comparable_array
from sleeper.lookup.parquet.bloom import BloomFilter, FilterKey, Hashes, filter_key, hash_array
from sleeper.lookup.parquet.page_index import BOUND_WIDTH_MAX, Bounds
from sleeper.model.keys import Key
from sleeper.model.queries import key_values
from sleeper.model.schema import Schema


def one_key_batch(key: Key, arrow_schema: pa.Schema) -> pa.RecordBatch:
    """Return one complete, checked row key as a batch of one row."""
    fields = [arrow_schema.field(place) for place in range(len(key))]
    arrays = [one_value(value, field.type) for value, field in zip(key, fields, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def one_value(value: Any, kind: pa.DataType) -> pa.Array:
    """Return an array of one value, made from its bytes: `pa.array` would import pandas."""
    item = key_traits_of(kind).to_item(value)
    if isinstance(item, bytes):
        ends = pa.py_buffer(pack("<ii", 0, len(item)))
        return pa.Array.from_buffers(kind, 1, [None, ends, pa.py_buffer(item)])
    width = "<i" if kind.bit_width == 32 else "<q"
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(pack(width, item))])


def key_batch(keys: object, schema: Schema, arrow_schema: pa.Schema) -> pa.RecordBatch:
    """Return many complete row keys as one batch, sorted and without repeats.

    Args:
        keys: For one row key field, a sequence of its values, or an Arrow or NumPy array of
            them. For several, tuples or mappings of field name to value, each of a complete key.

    Raises:
        QueryInvalid: a value does not fit its field, is null, or a key is not complete.
    """
    fields = [arrow_schema.field(field.name) for field in schema.row_keys]
    columns = _key_columns(keys, schema, fields)
    table = pa.Table.from_arrays(columns, schema=pa.schema(fields))
    for name, column in zip(table.column_names, table.columns, strict=True):
        if column.null_count:
            raise QueryInvalid(
                f"{column.null_count} of {len(column)} keys have no value for {name!r}: leave None "
                "out of keys=[...], for no row has it"
            )
    distinct = table.group_by(table.column_names, use_threads=False).aggregate([])
    order = [(name, "ascending") for name in table.column_names]
    ordered = distinct.take(pc.sort_indices(distinct, sort_keys=order)).combine_chunks()
    batches = ordered.to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


def key_rows(batch: pa.RecordBatch) -> list[Key]:
    """Return the keys of a batch as tuples of Python values."""
    return list(zip(*(column.to_pylist() for column in batch.columns), strict=True))


def _key_columns(keys: object, schema: Schema, fields: list[pa.Field]) -> list[pa.ChunkedArray]:
    """Return the values of each key field, in exactly its type."""
    if isinstance(keys, str | bytes):
        raise QueryInvalid(
            f"{keys!r:.200} is one key; did you mean key={keys!r:.200}? keys= is a list of "
            "complete row keys"
        )
    parts = [keys] if len(fields) == 1 and not _has_parts(keys) else _parts(keys, schema)
    return [_column(values, field) for values, field in zip(parts, fields, strict=True)]


def _column(values: object, field: pa.Field) -> pa.ChunkedArray:
    if _is_bytes(values) and pa.types.is_string(field.type):  # Arrow would read it as UTF-8
        raise QueryInvalid(f"keys=[...] has bytes, but key field {field.name!r} holds text")
    try:
        return checked_column(values, field.type)
    except TypeError as error:
        raise QueryInvalid(
            f"keys must be a sequence of row keys: {error}. Give a list of complete row keys, or "
            "for one key key=..."
        ) from None
    except ValueError as error:
        raise QueryInvalid(
            f"keys=[...] has values that do not fit key field {field.name!r}: {error}"
        ) from None


def _is_bytes(values: object) -> bool:
    if not isinstance(values, pa.Array | pa.ChunkedArray):
        return False
    kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    is_ = pa.types
    return any(
        test(kind) for test in (is_.is_binary, is_.is_large_binary, is_.is_fixed_size_binary)
    )


def _parts(keys: object, schema: Schema) -> list[list[Any]]:
    """Return the values of each field from complete keys, which are tuples or mappings."""
    if not isinstance(keys, Iterable) or isinstance(keys, Mapping):
        raise QueryInvalid(
            f"keys must be a sequence of row keys: a {type(keys).__name__} is none. Give a list of "
            "complete row keys, or for one key key=..."
        )
    whole = [key_values(schema, key) for key in keys]
    names = schema.row_key_names
    for place, values in enumerate(whole):
        if len(values) < len(names):
            raise QueryInvalid(
                f"keys=[...] needs whole row keys ({', '.join(names)}), unlike number {place}: "
                f"{values!r}; give a prefix by key=, or several by regions=[...]"
            )
    return [[values[name] for values in whole] for name in names]


def _has_parts(keys: object) -> bool:
    if isinstance(keys, pa.Array | pa.ChunkedArray) or not isinstance(keys, Sequence):
        return False
    return any(issubclass(cls, Mapping | tuple | list) for cls in set(map(type, keys)))


class LookupKeys:
    """Distinct keys in ascending order, one column per row key field, no nulls.

    Attributes:
        batch: The given keys.
        count: The number of keys.
    """

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch
        self.count = int(batch.num_rows)
        self._by_width: dict[int, tuple[Bounds, Ints]] = {}
        self._columns = [comparable_array(column) for column in batch.columns]

    @property
    def column_count(self) -> int:
        """The number of row key fields of a key."""
        return len(self._columns)

    @cached_property
    def first(self) -> tuple[KeyItem, ...]:
        """The first key's values, one a column."""
        return tuple(column[0].as_py() for column in self._columns)

    @cached_property
    def first_bounds(self) -> tuple[Bounds, ...]:
        """The first key's values, comparable with page bounds."""
        return tuple(key_bound(value) for value in self.first)

    @cached_property
    def first_filter_keys(self) -> tuple[FilterKey, ...]:
        """The first key's values, in the form of filters."""
        widths = (4 if pa.types.is_int32(column.type) else 8 for column in self._columns)
        return tuple(map(filter_key, self.first, widths))

    def bounds(self, column: int) -> Bounds:
        """Return the distinct values of a column, ascending, comparable with page bounds."""
        return bounds_form(self.distinct[column])

    @cached_property
    def distinct(self) -> list[pa.Array]:
        """The distinct values of each column, ascending."""
        found = []
        for column in self._columns:
            if len(self._columns) == 1:
                found.append(column)
                continue
            values = pc.unique(column)
            found.append(values.take(pc.sort_indices(values)))
        return found

    @cached_property
    def distinct_bounds(self) -> list[Bounds]:
        """`bounds` of every column."""
        return [self.bounds(column) for column in range(len(self._columns))]

    def firsts_of_width(self, width: int) -> tuple[Bounds, Ints]:
        """Return the distinct first values of exactly `width` bytes, and their places.

        `width` is at most `BOUND_WIDTH_MAX`. Among values of one width numpy compares exactly.
        """
        known = self._by_width.get(width)
        if known is None:
            lengths = pc.binary_length(self.distinct[0]).to_numpy(zero_copy_only=False)
            places = np.flatnonzero(lengths == width)
            known = self.distinct_bounds[0][places].astype(f"S{width}"), places
            self._by_width[width] = known
        return known

    @cached_property
    def hashes(self) -> list[Hashes]:
        """The hashes of the distinct values of each column, for filters."""
        return [hash_array(values) for values in self.distinct]

    @cached_property
    def value_places(self) -> list[Ints]:
        """For each column the place of each key's value among the distinct ones.

        Those of the first column ascend.
        """
        if len(self._columns) == 1:
            return [np.arange(self.count)]
        return [
            np.asarray(pc.index_in(column, value_set=values).to_numpy(zero_copy_only=False), int)
            for column, values in zip(self._columns, self.distinct, strict=True)
        ]

    @cached_property
    def prefixes(self) -> list[Ints]:
        """The distinct key prefixes of each length, as ascending codes.

        Item `j` has one number for each distinct prefix of `j + 1` columns: the place of the prefix
        one shorter, times the number of distinct values of column `j`, plus the place of its value.
        The last item has one code for each key, in the order of the keys.
        """
        found = []
        places = np.zeros(self.count, np.int64)
        for place, values in zip(self.value_places, self.distinct, strict=True):
            codes = places * len(values) + place
            distinct, places = np.unique(codes, return_inverse=True)
            found.append(distinct)
        return found

    def values_of(self, column: int, places: Ints) -> pa.Array:
        """Return a column's value for each place of a key."""
        if len(places) == 1:
            return self.batch.column(column).slice(places[0], 1)
        return self.batch.column(column).take(pa.array(places))


class PossibleKeys:
    """The keys that one row group may contain.

    Attributes:
        rows: Places of the keys, ascending.
        firsts: Places of their distinct first values, ascending.
        distinct_bounds: Their distinct first values, comparable with page bounds.

    Args:
        keys: All keys of the look-up.
        first, end: Places of the distinct first values between the row group's bounds.
        filters: The row group's filters, one a key column; each may rule a key out.
    """

    def __init__(
        self, keys: LookupKeys, first: int, end: int, filters: Sequence[BloomFilter | None]
    ) -> None:
        low, high = keys.value_places[0].searchsorted((first, end)).tolist()
        self._keys = keys
        self.rows: Ints = np.arange(low, high)
        for number, bloom_filter in enumerate(filters):
            if bloom_filter is not None:
                hashes = keys.hashes[number][keys.value_places[number][self.rows]]
                self.rows = self.rows[bloom_filter.may_hold_each(hashes)]
        self.firsts = self.distinct(0)
        self.distinct_bounds = [keys.distinct_bounds[0][self.firsts]]

    def distinct(self, column: int) -> Ints:
        """Return the places of the distinct values that these keys have in a column, ascending."""
        places = self._keys.value_places[column][self.rows]
        return places if self._keys.column_count == 1 else np.unique(places)

    def firsts_of_width(self, width: int) -> tuple[Bounds, Ints]:
        """Return the first values of exactly `width` bytes, and their places in `firsts`."""
        values, places = self._keys.firsts_of_width(width)
        at = np.minimum(self.firsts.searchsorted(places), len(self.firsts) - 1)
        here = np.flatnonzero(self.firsts[at] == places)
        return values[here], at[here]


def bounds_form(values: pa.Array) -> Bounds:
    """Return key values as numpy numbers or fixed-width bytes."""
    if not pa.types.is_binary(values.type):
        return np.asarray(values.to_numpy(zero_copy_only=False)).astype(np.int64)
    cut = (
        pc.binary_slice(values, 0, BOUND_WIDTH_MAX)
        if _longest(values) > BOUND_WIDTH_MAX
        else values
    )
    return np.array(cut.to_pylist(), np.bytes_) if len(cut) else np.empty(0, "S1")


def _longest(values: pa.Array) -> int:
    return pc.max(pc.binary_length(values)).as_py() or 0


def key_bound(key: KeyItem) -> Bounds:
    """Return one key value, comparable with page bounds."""
    if isinstance(key, int):
        return np.array([key], np.int64)
    return np.array([key[:BOUND_WIDTH_MAX]], np.bytes_)
