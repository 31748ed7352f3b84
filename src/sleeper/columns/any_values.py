"""Converts values of one field: Arrow, NumPy or pandas arrays, or Python objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from sleeper.columns.exact_cast import castable, exact_cast
from sleeper.columns.python_values import MISFITS, first_misfit, python_array, with_article
from sleeper.columns.type_traits import outside_limits


def checked_column(values: Any, want: pa.DataType) -> pa.ChunkedArray:
    """Return values as a column of exactly the wanted type, without changing any of them.

    Raises:
        TypeError: `values` is not a sequence or an array.
        ValueError: a value does not fit; the message names its position, the value and the reason.
    """
    arrow = _as_arrow(values)
    if arrow is None:
        listed = _listed(values)
        try:
            return pa.chunked_array([python_array(listed, want)], want)
        except MISFITS:
            place, value, reason = first_misfit(listed, want)
            raise ValueError(f"number {place}, {value!r}: {reason}") from None
    if not castable(arrow.type, want):
        raise ValueError(f"they are {arrow.type}, not {want}")
    try:
        column = pa.chunked_array([exact_cast(chunk, want) for chunk in arrow.chunks], want)
    except pa.ArrowException as error:
        raise ValueError(str(error).splitlines()[0]) from None
    outside = outside_limits(column)
    if outside is not None:
        raise ValueError(f"there are {outside}")
    return column


def _as_arrow(values: Any) -> pa.ChunkedArray | None:
    """Return `values` as Arrow if the library knows the type; None if they are Python objects."""
    if isinstance(values, pa.ChunkedArray):
        return values
    if isinstance(values, pa.Array):
        return pa.chunked_array([values])
    given = getattr(values, "dtype", None)
    if str(given) == "object":
        return None
    if hasattr(values, "__arrow_c_stream__"):
        return pa.chunked_array(values)
    if given is None:
        return None
    try:
        found = pa.array(values, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise TypeError(f"an array of {given} cannot be converted to Arrow: {error}") from None
    return found if isinstance(found, pa.ChunkedArray) else pa.chunked_array([found])


def _listed(values: Any) -> Sequence[Any]:
    if isinstance(values, str | bytes | bytearray | memoryview | Mapping) or not isinstance(
        values, Iterable
    ):
        raise TypeError(f"{with_article(type(values))} is not a sequence")
    return values if isinstance(values, list | tuple) else list(values)
