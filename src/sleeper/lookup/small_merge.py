"""Put a few small sorted tables into one, in key order: what look-ups found in several files."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc


def merge_small(
    tables: Sequence[pa.Table], key_names: Sequence[str], schema: pa.Schema
) -> pa.Table:
    """Return the rows of all `tables`, ordered by `key_names`; equal keys keep their order.

    Everything is held in memory at once, so this is for answers, not for whole files. Keys have
    no nulls; every table has exactly `schema`.
    """
    with_rows = [table for table in tables if table.num_rows]
    if len(with_rows) < 2:
        return with_rows[0] if with_rows else schema.empty_table()
    together = pa.concat_tables(with_rows)
    by_key = pc.sort_indices(together, sort_keys=[(name, "ascending") for name in key_names])
    return together.take(by_key)
