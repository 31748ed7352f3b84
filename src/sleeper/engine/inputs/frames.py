"""Input from lazy frames of polars, and from dicts of columns."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from sleeper.columns.any_values import checked_column
from sleeper.engine.arrow_schema import check_columns
from sleeper.engine.panics import translated_panics
from sleeper.errors import BadRequest, InputSchemaMismatch, InputUnreadable

_BATCH_ROWS = 131_072


def is_lazy_frame(data: object) -> bool:
    """Return whether `data` is a lazy frame of polars, without importing polars."""
    module = sys.modules.get("polars")
    return module is not None and isinstance(data, module.LazyFrame)


def check_frame_names(names: Iterable[str]) -> None:
    """Check the names of columns before a frame of polars is read, which ends the process at NUL.

    Raises:
        InputSchemaMismatch: one has a NUL character.
    """
    for name in names:
        if "\0" in name:
            raise InputSchemaMismatch(
                f"the frame of polars has a column {name!r}, with a NUL character, which polars "
                "cannot pass on: rename or drop it. Nothing was ingested"
            )


def is_frame(data: object) -> bool:
    """Return whether `data` is a DataFrame of polars, without importing polars."""
    module = sys.modules.get("polars")
    return module is not None and isinstance(data, module.DataFrame)


@translated_panics("polars")
def lazy_schema(frame: Any) -> pa.Schema:
    """Return the schema of a lazy frame, which is not computed for it.

    Raises:
        InputUnreadable: polars cannot tell it, such as that of a file that is missing.
    """
    import polars as pl  # noqa: PLC0415 - loaded by whoever made the frame

    try:
        schema = frame.collect_schema()
        check_frame_names(schema)
        return pl.DataFrame(schema=schema).to_arrow().schema
    except (pl.exceptions.PolarsError, OSError) as error:
        raise _uncomputed(error) from None


def lazy_batches(frame: Any) -> Iterator[pa.RecordBatch]:
    """Compute a lazy frame as a stream, and yield its rows.

    Raises:
        InputUnreadable: polars cannot compute it.
    """
    import polars as pl  # noqa: PLC0415 - loaded by whoever made the frame

    if not hasattr(frame, "collect_batches"):
        raise BadRequest("this version of polars streams no LazyFrame: give frame.collect()")
    try:
        parts = iter(frame.collect_batches(chunk_size=_BATCH_ROWS))
        while (part := _next_part(parts)) is not None:
            yield from part
    except (pl.exceptions.PolarsError, OSError) as error:
        raise _uncomputed(error) from None


@translated_panics("polars")
def _next_part(parts: Iterator[Any]) -> list[pa.RecordBatch] | None:
    part = next(parts, None)
    return None if part is None else part.to_arrow().to_batches()


def _uncomputed(error: Exception) -> InputUnreadable:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return InputUnreadable(f"polars cannot compute the LazyFrame: {reason}. Nothing was ingested.")


def table_of_columns(columns: Mapping[Any, Any], arrow_schema: pa.Schema) -> pa.Table:
    """Return a dict of columns as a table, with the table's types.

    Columns that the table does not have become text, and are refused or dropped by name later.

    Raises:
        BadRequest: a value is no column, or columns differ in length.
        InputSchemaMismatch: a value does not fit its column.
    """
    found: dict[str, pa.ChunkedArray] = {}
    known = set(arrow_schema.names)
    names = [name for name in columns if isinstance(name, str)]
    if len(names) < len(columns) or not names:
        raise BadRequest("a dict of columns has names of columns, and there is at least one")
    check_columns(
        pa.schema([(name, pa.null()) for name in names if name in known]),
        arrow_schema,
        ignore_extra_columns=True,
        origin="the dict of columns",
    )
    for name in names:
        if name not in known:
            continue
        try:
            found[name] = checked_column(columns[name], arrow_schema.field(name).type)
        except TypeError as error:
            raise BadRequest(
                f"{name!r} of the dict of columns is no column: {error}. Give a list or an array "
                "for each column; one row is given as [row]"
            ) from None
        except ValueError as error:
            raise InputSchemaMismatch(f"column {name!r} of the dict of columns: {error}") from None
    lengths = {name: len(column) for name, column in found.items()}
    if len(set(lengths.values())) > 1:
        raise BadRequest(f"the columns of the dict differ in length: {lengths}")
    rows = next(iter(lengths.values()))
    extra = {name: pa.chunked_array([pa.nulls(rows)]) for name in names if name not in known}
    return pa.table({**found, **extra})
