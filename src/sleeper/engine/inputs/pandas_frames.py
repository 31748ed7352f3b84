"""Reads DataFrames of pandas as batches of rows.

An index without a name is not read, whatever it holds, as in DuckDB and polars: `sort_values`,
`dropna` and `groupby` leave row numbers in it. An index with a name is a column, and so is each
level with a name of a MultiIndex.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from sleeper.engine.arrow_schema import check_columns
from sleeper.engine.inputs.dict_rows import field_array
from sleeper.errors import InputSchemaMismatch

NAME = "the DataFrame"


def is_pandas(data: object) -> bool:
    """Return whether `data` is a DataFrame of pandas, without importing pandas."""
    kind = type(data)
    return kind.__module__.partition(".")[0] == "pandas" and kind.__name__ == "DataFrame"


def check_frame(frame: Any, arrow_schema: pa.Schema, *, ignore_extra_columns: bool) -> None:
    """Compare the names of a frame's columns and index with a table's, before rows are read.

    Raises:
        InputSchemaMismatch: they do not fit; see `check_columns`.
    """
    columns, levels = _names(frame)
    known = set(arrow_schema.names)
    strange = [name for name in levels if name not in known]
    if strange and not ignore_extra_columns:
        raise InputSchemaMismatch(
            f"the index of the DataFrame is named {strange}, and the table has no such columns; "
            "drop it by reset_index(drop=True), or give ignore_extra_columns=True. The table has "
            f"{arrow_schema.names}"
        )
    names = [*columns, *levels]
    types = {name: pa.null() if name in known else pa.string() for name in names}
    check_columns(
        pa.schema([(name, types[name]) for name in names]),
        arrow_schema,
        ignore_extra_columns=ignore_extra_columns,
        origin=NAME,
    )


def frame_batches(frame: Any, arrow_schema: pa.Schema, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a frame, with the columns that the table has; `batch_rows` in a batch.

    Values that pandas treats as missing become null.

    Raises:
        InputSchemaMismatch: a value does not fit its column.
    """
    columns, levels = _names(frame)
    for start in range(0, max(1, len(frame)), batch_rows):
        rows = frame.iloc[start : start + batch_rows]
        found = {}
        for field in arrow_schema:
            if field.name in columns:
                values = rows.iloc[:, columns.index(field.name)]
            elif field.name in levels:
                values = rows.index.get_level_values(levels[field.name])
            else:
                continue
            found[field.name] = _column(values, field, start)
        yield from pa.table(found).to_batches()


def frame_schema(frame: Any) -> pa.Schema:
    """Return the columns of a frame, and the levels of its index that have names, first.

    The type of Python objects is found from all of them. Any value may be null.

    Raises:
        InputSchemaMismatch: a column has values of several types, or of none that Arrow has.
    """
    columns, levels = _names(frame)
    found = [
        pa.field(name, _column_type(frame.index.get_level_values(at), name))
        for name, at in levels.items()
    ]
    for at, name in enumerate(columns):
        found.append(pa.field(name, _column_type(frame.iloc[:, at], name)))
    return pa.schema(found)


def _column_type(values: Any, name: str) -> pa.DataType:
    """Return the type of a column or a level of an index; objects of class UUID are texts."""
    kind = arrow_column(values, name).type
    return pa.string() if values.dtype == object and kind == pa.uuid() else kind


def _names(frame: Any) -> tuple[list[str], dict[str, int]]:
    """Return the names of a frame's columns, and the levels of its index that have names."""
    if frame.columns.nlevels > 1:
        raise InputSchemaMismatch(
            "the DataFrame has columns of several levels (a MultiIndex): give each column one "
            "name, for example by df.columns = ['_'.join(map(str, each)) for each in df.columns]"
        )
    columns = [str(name) for name in frame.columns]
    levels = [str(name) for name in frame.index.names if name is not None]
    doubled = sorted({name for name in levels if name in columns or levels.count(name) > 1})
    if doubled:
        raise InputSchemaMismatch(
            f"the index of the DataFrame is named {doubled}, as is a column or another level: drop "
            "it by reset_index(drop=True), or rename it by rename_axis(...)"
        )
    places = {str(name): at for at, name in enumerate(frame.index.names) if name is not None}
    return columns, places


def _column(values: Any, field: pa.Field, start: int) -> pa.ChunkedArray:
    """Return a column or a level of an index as Arrow; Python objects as the type of a field."""
    if values.dtype == object:
        listed = values.where(values.notna(), None).tolist()
        return pa.chunked_array([field_array(listed, field, NAME, start)])
    return arrow_column(values, field.name)


def arrow_column(values: Any, name: str) -> pa.ChunkedArray:
    """Return the column `name` of a frame, or a level of its index, as Arrow has it.

    Raises:
        InputSchemaMismatch: Arrow has no type for its values, or one that means something else.
    """
    kind = type(values.dtype).__name__
    if kind in _ADVICE:
        raise InputSchemaMismatch(
            f"column {name!r} of the DataFrame is of {values.dtype}: {_ADVICE[kind]}"
        )
    try:
        found = pa.array(values, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InputSchemaMismatch(
            f"column {name!r} of the DataFrame, of {values.dtype}, cannot become Arrow: {error}. "
            "Give the column one type"
        ) from None
    return found if isinstance(found, pa.ChunkedArray) else pa.chunked_array([found])


_ADVICE = {
    "PeriodDtype": "make times of it by .dt.to_timestamp()",
    "IntervalDtype": "make a column of each of its ends, by .left and .right",
    "SparseDtype": "make it dense by .sparse.to_dense()",
}
