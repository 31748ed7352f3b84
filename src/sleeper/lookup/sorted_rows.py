"""Checks that rows are in key order, and merges small sorted tables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.lookup.key_search import KeyRows, read_rows
from sleeper.lookup.parquet.file_end import ReadRanges
from sleeper.lookup.parquet_index import ParquetIndex


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
    whole = [KeyRows(group, start, start + counts[group], start) for group in groups]
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
    return sort_small(pa.concat_tables(with_rows), key_names)


def sort_small(rows: pa.Table, key_names: Sequence[str]) -> pa.Table:
    """Return rows ordered by `key_names`, as `merge_small`."""
    by_key = pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in key_names])
    return rows.take(by_key)
