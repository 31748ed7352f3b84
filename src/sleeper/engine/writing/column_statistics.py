"""Which columns of a Parquet file get statistics: all but floating-point numbers.

Parquet leaves NaN out of a column's least and greatest value, and cannot say so. Engines that
trust these limits read a NaN as another row's value, or skip the row (docs/decisions, 0034).
"""

from __future__ import annotations

import pyarrow as pa


def columns_with_statistics(arrow_schema: pa.Schema) -> list[str] | bool:
    """Return pyarrow's `write_statistics`: the Parquet paths of the columns, or False for none.

    Numbers inside lists and maps keep theirs: engines take no value from them, and the page index
    of a list counts its values only where there are some.
    """
    kept = [field for field in arrow_schema if not pa.types.is_floating(field.type)]
    return [path for field in kept for path in parquet_paths(field)] or False


def parquet_paths(field: pa.Field) -> list[str]:
    """Return the Parquet paths of the columns that pyarrow makes of a field."""
    if pa.types.is_list(field.type):
        return [f"{field.name}.list.element"]
    if pa.types.is_map(field.type):
        return [f"{field.name}.key_value.key", f"{field.name}.key_value.value"]
    return [field.name]
