"""Runs a user's function on rows in key order, and checks its output (rule PRC-6).

Output rows must fit the schema, be in key order, and have row keys that are, field by field,
between the least and the greatest input so far. Such keys are in the same leaf, or in the leaves
that are read together, so no row is stored where a query would not find it. Only the last output
key is kept in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from importlib import import_module
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.engine.arrow_schema import shown_schema, to_arrow
from sleeper.errors import TableFunctionFailed, is_panic
from sleeper.lookup.sorted_rows import first_out_of_order
from sleeper.model.processing import FUNCTION, TableFunction
from sleeper.model.schema import Schema

# ---------------------------------------------------------------- key limits
#
# The least and greatest values of row keys.


class KeyLimits:
    """The least and the greatest value of each row key field so far.

    The region of a leaf has a range for each field. So a key that is between these values in every
    field is in every region that contains all the keys.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._limits: dict[str, tuple[Any, Any] | None] = dict.fromkeys(names)

    def widen(self, rows: pa.RecordBatch) -> None:
        """Add the keys of some rows."""
        if not rows.num_rows:
            return
        for name, limits in self._limits.items():
            low, high = _ends(rows.column(name))
            if limits is not None:
                low, high = min(low, limits[0]), max(high, limits[1])
            self._limits[name] = (low, high)

    def first_outside(self, rows: pa.RecordBatch) -> int | None:
        """Return the index of the first row that is outside, or None."""
        outside = [
            place
            for name, limits in self._limits.items()
            if (place := _first_outside(rows.column(name), limits)) is not None
        ]
        return min(outside, default=None)

    def __str__(self) -> str:
        known = {name: limits for name, limits in self._limits.items() if limits is not None}
        between = (f"between {low!r} and {high!r} ({name})" for name, (low, high) in known.items())
        return ", ".join(between) or "none, because it had read no row"


def _first_outside(column: pa.Array, limits: tuple[Any, Any] | None) -> int | None:
    if limits is None:
        return 0
    low, high = _ends(column)
    if limits[0] <= low and high <= limits[1]:
        return None
    least, greatest = (pa.scalar(limit, column.type) for limit in limits)
    outside = pc.or_(pc.less(column, least), pc.greater(column, greatest))
    return _first(_flags(outside), 0)


def _ends(column: pa.Array) -> tuple[Any, Any]:
    """Return the least and the greatest value as Python values, whose order is that of keys."""
    ends = pc.min_max(column)
    return ends["min"].as_py(), ends["max"].as_py()


def _flags(answers: pa.Array) -> Any:
    return answers.to_numpy(zero_copy_only=False)


def _first(flags: Any, offset: int) -> int | None:
    places = np.flatnonzero(flags)
    return int(places[0]) + offset if len(places) else None


_RAISED = (Exception, SystemExit)
"""The errors of a function that are reported instead of ending the process."""


def apply_table_function(
    batches: Iterator[pa.RecordBatch], function: TableFunction, schema: Schema
) -> Iterator[pa.RecordBatch]:
    """Call a table's function on rows in key order, and yield its rows.

    It gets and yields columns in the order in which queries return them. An error of the input,
    such as a file that cannot be read, is raised unchanged.

    Args:
        batches: Rows with all fields of the schema, in order of row keys, then sort keys.
        function: Called once; neither imported nor called if there are no rows.
        schema: The table's.

    Raises:
        TableFunctionFailed: it is not allowed here, missing, raised, or broke its contract.
    """
    first = next(batches, None)
    if first is None:
        return
    call = _found(function)
    shown = (batch.select(schema.columns) for batch in chain([first], batches))
    incoming = _Incoming(shown, KeyLimits([field.name for field in schema.row_keys]))
    expected, last = shown_schema(schema, to_arrow(schema)), None
    for given in _results(call, incoming, function):
        rows = _fitting(given, expected, function).select(schema.names)
        if rows.num_rows:
            keys = rows.select(schema.key_names)
            _check_order(keys, last, function)
            _check_limits(keys, incoming.limits, function)
            last = keys.slice(keys.num_rows - 1)
            yield rows


@cache
def _found(function: TableFunction) -> Callable[[Iterator[pa.RecordBatch]], Any]:
    if not function.is_allowed:
        raise _failure(
            function,
            f"functions of module {function.module!r} are not allowed here, because a table's "
            "function is code that runs in this process. If you trust it, open the instance by "
            f"connect(..., allow_functions=[{function.module!r}]), or set "
            f"SLEEPER_ALLOW_FUNCTIONS={function.module} for the command line and other processes",
        )
    try:
        module = import_module(function.module)
    except _RAISED as error:
        raise _failure(
            function,
            f"module {function.module!r} cannot be imported ({_told(error)}). Put its "
            "folder on PYTHONPATH, or install its package, on every machine that reads or writes "
            "this table, including Spark's workers",
        ) from error
    found = getattr(module, function.name, None)
    if not callable(found):
        what = "has nothing with that name" if found is None else "has no function with that name"
        raise _failure(
            function,
            f"module {function.module!r} at {getattr(module, '__file__', None)} {what}. Set the "
            "property to one of its functions, or install the version that has it",
        )
    return found  # type: ignore[no-any-return]


class _Incoming:
    """The input of a function, with its limits and its error.

    Attributes:
        limits: The least and greatest row keys of the input so far.
        failure: The error of the input; the function may have suppressed it.
    """

    def __init__(self, batches: Iterator[pa.RecordBatch], limits: KeyLimits) -> None:
        self._batches = batches
        self.limits = limits
        self.failure: Exception | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        try:
            batch = next(self._batches)
        except StopIteration:
            raise
        except Exception as error:
            self.failure = error
            raise
        self.limits.widen(batch)
        return batch


def _results(
    call: Callable[[Iterator[pa.RecordBatch]], Any], incoming: _Incoming, function: TableFunction
) -> Iterator[Any]:
    """Yield the output of a function, and check that it has read all rows."""
    given: Iterable[Any] = ()
    try:
        given = call(incoming)
        yield from given
    except BaseException as error:
        if not (isinstance(error, _RAISED) or is_panic(error)):
            raise
        if incoming.failure is not None:
            raise incoming.failure from incoming.failure.__cause__
        raise _failure(
            function,
            f"the function raised {_told(error)}. Nothing was changed. Correct it, or unset the "
            "property",
        ) from error
    if incoming.failure is not None:
        raise incoming.failure
    if next(incoming, None) is not None:
        raise _failure(
            function,
            "the function ended before it had read all of its batches, and the rows left would be "
            "lost. It may drop rows, but must read them",
        )


def _fitting(given: object, expected: pa.Schema, function: TableFunction) -> pa.RecordBatch:
    """Check a batch of the output and return it in exactly the table's schema."""
    if not isinstance(given, pa.RecordBatch):
        raise _failure(
            function,
            f"the function returned a {type(given).__name__}, but it must be a generator of "
            "pyarrow.RecordBatch",
        )
    wrong = _difference(given, expected)
    if wrong is not None:
        raise _failure(
            function,
            f"{wrong}. The function must yield batches with the table's schema: make them with "
            "pyarrow.RecordBatch.from_arrays(columns, schema=batch.schema)",
        )
    if given.schema.equals(expected):
        return given
    return pa.RecordBatch.from_arrays(given.columns, schema=expected)


def _difference(given: pa.RecordBatch, expected: pa.Schema) -> str | None:
    if given.schema.names != expected.names:
        return f"the function yielded columns {given.schema.names} for {expected.names}"
    for column, field in zip(given.columns, expected, strict=True):
        if column.type != field.type:
            return f"the function yielded field {field.name!r} as {column.type} for {field.type}"
        if column.null_count and not field.nullable:
            return f"the function yielded nulls in field {field.name!r}, which is not nullable"
    return None


def _check_order(
    keys: pa.RecordBatch, last: pa.RecordBatch | None, function: TableFunction
) -> None:
    together = keys if last is None else pa.concat_batches([last, keys])
    place = first_out_of_order(together)
    if place is not None:
        before, wrong = together.slice(place - 1, 2).to_pylist()
        raise _failure(
            function,
            f"the function yielded rows out of key order: {wrong} after {before}. Rows must keep "
            "the order of row keys, then sort keys",
        )


def _check_limits(keys: pa.RecordBatch, limits: KeyLimits, function: TableFunction) -> None:
    place = limits.first_outside(keys)
    if place is not None:
        raise _failure(
            function,
            f"the function yielded the row {keys.slice(place, 1).to_pylist()[0]}, but the row keys "
            f"that it had read so far are {limits}. It must not change row keys: queries would "
            "not find the row in another leaf",
        )


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _failure(function: TableFunction, happened: str) -> TableFunctionFailed:
    return TableFunctionFailed(f"{FUNCTION} is {str(function)!r}: {happened}.")
