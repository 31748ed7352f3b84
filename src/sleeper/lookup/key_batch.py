"""The row keys of a look-up as Arrow: one RecordBatch, sorted and distinct."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from struct import pack
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.columns.any_values import checked_column
from sleeper.columns.type_traits import key_traits_of
from sleeper.errors import QueryInvalid
from sleeper.lookup.key_search import Found, read_rows
from sleeper.lookup.parquet.file_end import ReadRanges
from sleeper.lookup.parquet_index import ParquetIndex
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
    columns = _columns(keys, schema, fields)
    table = pa.Table.from_arrays(columns, schema=pa.schema(fields))
    for name, column in zip(table.column_names, table.columns, strict=True):
        if column.null_count:
            raise QueryInvalid(f"{column.null_count} of the keys have no value for {name!r}")
    distinct = table.group_by(table.column_names, use_threads=False).aggregate([])
    order = [(name, "ascending") for name in table.column_names]
    ordered = distinct.take(pc.sort_indices(distinct, sort_keys=order)).combine_chunks()
    batches = ordered.to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


def key_rows(batch: pa.RecordBatch) -> list[Key]:
    """Return the keys of a batch as tuples of Python values."""
    return list(zip(*(column.to_pylist() for column in batch.columns), strict=True))


def _columns(keys: object, schema: Schema, fields: list[pa.Field]) -> list[pa.ChunkedArray]:
    """Return the values of each key field, in exactly its type."""
    if isinstance(keys, str | bytes):
        raise QueryInvalid(f"{keys!r} is one key; did you mean key={keys!r}?")
    given = [keys] if len(fields) == 1 and not _has_parts(keys) else _parts(keys, schema)
    return [_column(values, field) for values, field in zip(given, fields, strict=True)]


def _column(values: object, field: pa.Field) -> pa.ChunkedArray:
    try:
        return checked_column(values, field.type)
    except TypeError as error:
        raise QueryInvalid(f"keys must be a sequence of row keys: {error}") from None
    except ValueError as error:
        raise QueryInvalid(
            f"keys=[...] has values that do not fit key field {field.name!r}: {error}"
        ) from None


def _parts(keys: object, schema: Schema) -> list[list[Any]]:
    """Return the values of each field from complete keys, which are tuples or mappings."""
    if not isinstance(keys, Iterable) or isinstance(keys, Mapping):
        raise QueryInvalid(f"keys must be a sequence of row keys, not {type(keys).__name__}")
    whole = [key_values(schema, key) for key in keys]
    names = schema.row_key_names
    for place, values in enumerate(whole):
        if len(values) < len(names):
            raise QueryInvalid(
                f"keys=[...] needs whole row keys ({', '.join(names)}), unlike number {place}: "
                f"{values!r}; query a prefix by key=, or several by regions=[...]"
            )
    return [[values[name] for values in whole] for name in names]


def _has_parts(keys: object) -> bool:
    if isinstance(keys, pa.Array | pa.ChunkedArray) or not isinstance(keys, Sequence):
        return False
    return any(issubclass(cls, Mapping | tuple | list) for cls in set(map(type, keys)))


# ---------------------------------------------------------------- key order
#
# Checks that rows are in key order, and merges small sorted tables.


def check_key_order(
    index: ParquetIndex, schema: pa.Schema, key_names: Sequence[str], read: ReadRanges
) -> None:
    """Read all keys of a file, and check that its rows ascend by them.

    Needs memory for about 8 MiB of compressed pages and their decoded values.

    Args:
        index: The file's.
        schema: The table's.
        key_names: Row keys, then sort keys.
        read: Reads the file.

    Raises:
        ValueError: they do not ascend, a key is null, or the file is damaged.
    """
    columns = [index.columns(schema)[name] for name in key_names]
    leaves = tuple(leaf for column in columns for leaf in column.column.leaves)
    counts = index.footer.row_counts
    groups = [group for group, count in enumerate(counts) if count]
    index.load(groups, leaves, (), read)
    start = np.zeros(1, np.int64)
    whole = [Found(group, start, start + counts[group], start) for group in groups]
    before: pa.RecordBatch | None = None
    rows_before = 0
    for _, arrays in read_rows(index, whole, columns, read):
        keys = pa.RecordBatch.from_arrays(arrays, names=[*key_names])
        if any(array.null_count for array in arrays):
            raise ValueError("some of its keys are null")
        together = keys if before is None else pa.concat_batches([before, keys])
        place = first_out_of_order(together)
        if place is not None:
            row = rows_before + place - (before is not None)
            raise ValueError(
                f"its rows are not in key order: row {row:,} is less than the one before"
            )
        before = together.slice(together.num_rows - 1)
        rows_before += keys.num_rows


def first_out_of_order(keys: pa.RecordBatch) -> int | None:
    """Return the number of the first row that is less than the one before it, or None.

    Args:
        keys: Key columns without nulls, in the order in which they are compared.
    """
    falls = np.zeros(max(0, keys.num_rows - 1), dtype=bool)
    for column in reversed(keys.columns):
        before, after = column.slice(0, len(falls)), column.slice(1)
        as_before = pc.equal(after, before).to_numpy(zero_copy_only=False)
        falls = pc.less(after, before).to_numpy(zero_copy_only=False) | (as_before & falls)
    places = np.flatnonzero(falls)
    return int(places[0]) + 1 if len(places) else None


def merge_small(
    tables: Sequence[pa.Table], key_names: Sequence[str], schema: pa.Schema
) -> pa.Table:
    """Return the rows of all `tables`, ordered by `key_names`; equal keys keep their order.

    Everything is in memory, so this is for results, not for files. Keys have no nulls; every table
    has exactly `schema`.
    """
    with_rows = [table for table in tables if table.num_rows]
    if len(with_rows) < 2:
        return with_rows[0] if with_rows else schema.empty_table()
    together = pa.concat_tables(with_rows)
    by_key = pc.sort_indices(together, sort_keys=[(name, "ascending") for name in key_names])
    return together.take(by_key)
