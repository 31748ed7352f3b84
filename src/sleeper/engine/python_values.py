"""Rows and columns of Arrow as values of Python.

Arrow imports pandas, where it is installed, as soon as it makes an instant with a time zone: a
quarter of a second and 40 MB that no row needs. Here it makes the clock in UTC, and the zone is
added.
"""

from __future__ import annotations

from typing import Any, Literal

import pyarrow as pa


def python_rows(
    rows: pa.RecordBatch | pa.Table, maps: Literal["lossy"] | None = "lossy"
) -> list[dict[str, Any]]:
    """Return rows as dicts, as `to_pylist` of Arrow does.

    Args:
        rows: The rows, all of which become objects of Python.
        maps: "lossy" for maps as dicts, in which the last of the same keys stays; None for lists
            of tuples.
    """
    if not rows.num_columns:
        empty: list[dict[str, Any]] = rows.to_pylist()
        return empty
    names = rows.schema.names
    columns = [python_values(column, maps) for column in rows.columns]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def python_values(
    column: pa.Array | pa.ChunkedArray, maps: Literal["lossy"] | None = "lossy"
) -> list[Any]:
    """Return the values of a column, as `to_pylist` of Arrow does."""
    name = getattr(column.type, "tz", None)
    if name is None or column.type.unit == "ns":
        values: list[Any] = column.to_pylist(maps_as_pydicts=maps)
        return values
    zone = pa.lib.string_to_tzinfo(name)
    clock = column.cast(pa.int64()).cast(pa.timestamp(column.type.unit)).to_pylist()
    return [
        None if instant is None else zone.fromutc(instant.replace(tzinfo=zone)) for instant in clock
    ]
