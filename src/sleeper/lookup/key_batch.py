"""The row keys of a look-up as Arrow: one RecordBatch, sorted and distinct."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from struct import pack
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sleeper.errors import QueryInvalid
from sleeper.model.keys import Key
from sleeper.model.queries import exact_key
from sleeper.model.schema import Schema


def one_key_batch(key: Key, arrow_schema: pa.Schema) -> pa.RecordBatch:
    """Return one whole row key, checked already, as a batch of one row."""
    fields = [arrow_schema.field(place) for place in range(len(key))]
    arrays = [_one_value(value, field.type) for value, field in zip(key, fields, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _one_value(value: Any, kind: pa.DataType) -> pa.Array:
    """An array of one value, from its bytes: `pa.array` would import pandas to look at a list."""
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        body = value.encode() if isinstance(value, str) else value
        ends = pa.py_buffer(pack("<ii", 0, len(body)))
        return pa.Array.from_buffers(kind, 1, [None, ends, pa.py_buffer(body)])
    if isinstance(value, datetime):
        epoch = datetime(1970, 1, 1, tzinfo=value.tzinfo)
        value = (value - epoch) // timedelta(microseconds=1)
    elif isinstance(value, date):
        value = (value - date(1970, 1, 1)).days
    width = "<i" if kind.bit_width == 32 else "<q"
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(pack(width, value))])


def key_batch(keys: object, schema: Schema, arrow_schema: pa.Schema) -> pa.RecordBatch:
    """Return many whole row keys as one batch, sorted and without repeats.

    Args:
        keys: For one row key field, a sequence of its values, or an Arrow or NumPy array of
            them. For several, tuples or mappings of field name to value, each of a whole key.

    Raises:
        QueryInvalid: a value does not fit its field, is null, or a key is not whole.
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


def _columns(keys: object, schema: Schema, fields: list[pa.Field]) -> list[Any]:
    """The values of each key field; the fast way first, the way with exact messages after."""
    if len(fields) == 1 and not _has_parts(keys):
        try:
            return [_single_column(keys, fields[0].type)]
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            if not isinstance(keys, Sequence) or isinstance(keys, str | bytes):
                raise QueryInvalid(f"keys must be a sequence of row keys: {error}") from None
    if not isinstance(keys, Sequence) or isinstance(keys, str | bytes):
        raise QueryInvalid(f"keys must be a sequence of row keys, not {type(keys).__name__}")
    whole = []
    for key in keys:
        exact = exact_key(schema, key)
        if exact is None:
            raise QueryInvalid(
                f"keys=[...] wants whole row keys ({', '.join(schema.row_key_names)}), unlike "
                f"{key!r}; ask for a prefix by key=, or for several by regions=[...]"
            )
        whole.append(exact)
    return [pa.array([key[place] for key in whole], f.type) for place, f in enumerate(fields)]


def _single_column(keys: object, kind: pa.DataType) -> Any:
    if isinstance(keys, str | bytes):
        raise TypeError(f"{keys!r} is one key; did you mean key={keys!r}?")
    if not isinstance(keys, pa.Array | pa.ChunkedArray):
        return pa.array(keys, kind)
    if keys.type == kind:
        return keys
    return pa.array(keys.to_pylist(), kind)


def _has_parts(keys: object) -> bool:
    return isinstance(keys, Sequence) and bool(keys) and isinstance(keys[0], Mapping | tuple | list)
