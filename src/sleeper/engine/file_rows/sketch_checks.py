"""Compares the sketch of a data file with its keys."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.engine.file_rows.key_checks import KeyChecks
from sleeper.engine.writing.sketch import Distribution, Sketches
from sleeper.lookup.values import Ints, comparable_array
from sleeper.model.schema import Schema

_SAMPLES = 1024
ERROR_MAX = 0.02
"""How far, as a part of all rows, a quantile may be from where the sketch says it is. Sketches that
are written now are exact at the rows that they hold; those of the first version are not."""


def sampled_rows(sketch: Sketches | None, row_count: int) -> Ints:
    """Return the numbers of the rows whose keys are compared with a sketch."""
    if not row_count or sketch is None or not sketch.row_count:
        return np.empty(0, np.int64)
    stride = max(1, row_count // _SAMPLES)
    weights = sketch.distributions[0].rows_until
    if sketch.row_count == row_count and len(weights) > 1:
        stride = int(weights[0])  # every row that it holds
    rows = np.arange(0, row_count, stride, dtype=np.int64)
    return rows if rows[-1] == row_count - 1 else np.append(rows, row_count - 1)


def sketch_fault(sketch: Sketches, keys: KeyChecks, schema: Schema) -> str | None:
    """Return what is wrong with a sketch; None if nothing is.

    Args:
        sketch: The sketch.
        keys: The keys of its file, in order, with the rows of `sampled_rows`.
        schema: The table's schema.
    """
    if sketch.row_count != keys.row_count:
        return f"it is of {sketch.row_count:,} rows, and the file has {keys.row_count:,}"
    samples = keys.samples()
    if samples is None:
        return None
    fields = zip(schema.row_key_names, sketch.distributions, strict=True)
    exact = [_are_values(samples.column(name), told) for name, told in fields]
    if all(exact):
        return None
    if exact[0]:
        return f"its values of {schema.row_key_names[exact.index(False)]!r} are not those of rows"
    error = _error(samples.column(0), sketch.distributions[0], keys.sampled_rows, keys.row_count)
    if error <= ERROR_MAX:
        return None
    return (
        f"a quantile of {schema.row_key_names[0]!r} is wrong by {error:.0%} of the rows, and may "
        f"be by {ERROR_MAX:.0%}"
    )


def _in_form_of_sketch(column: pa.ChunkedArray) -> pa.Array:
    values = column.combine_chunks()
    return comparable_array(values.chunk(0) if isinstance(values, pa.ChunkedArray) else values)


def _are_values(column: pa.ChunkedArray, told: Distribution) -> bool:
    """Return whether a sketch holds exactly some values."""
    values = _in_form_of_sketch(column)
    if len(values) != len(told.values):
        return False
    ordered: list[Any] = values.take(pc.array_sort_indices(values)).to_pylist()
    return ordered == [*told.values]


def _error(column: pa.ChunkedArray, told: Distribution, rows: Ints, row_count: int) -> float:
    """Return how far the rows of some keys are from where a sketch says they are, at most."""
    error = 0
    values: list[Any] = _in_form_of_sketch(column).to_pylist()
    for value, row in zip(values, rows.tolist(), strict=True):
        below = bisect_left(told.values, value)
        until = bisect_right(told.values, value)
        rows_below = told.rows_until[below - 1] if below else 0
        rows_until = told.rows_until[until - 1] if until else 0
        error = max(error, rows_below - row, row + 1 - rows_until - _weight(told, until))
    return error / row_count


def _weight(told: Distribution, place: int) -> int:
    """Return how many rows the item at a place stands for: those between it and the one before."""
    if place >= len(told.rows_until):
        return 0
    return told.rows_until[place] - (told.rows_until[place - 1] if place else 0)
