"""Converts Python objects to an Arrow array of exactly the wanted type, without changing a value.

pyarrow silently changes values even if the type is given: 1.5 becomes 1, text becomes bytes, a
`datetime` its day, 1e39 infinity; a time without a zone is taken as UTC, and nanoseconds are
dropped. This module first checks the classes of all objects, as a set. Then pyarrow converts
them, and values that it may have changed are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from itertools import accumulate, chain
from operator import index
from typing import Any, Final

import pyarrow as pa

from sleeper.columns.type_traits import arrow_traits, plain_kind
from sleeper.model.column_types import is_integer, is_null_class, traits_of

MISFITS = (pa.ArrowException, TypeError, ValueError, OverflowError)
"""What `python_array` raises for values that do not fit."""


def python_array(values: Sequence[Any], want: pa.DataType) -> pa.Array:
    """Return values as an array of type `want`; None, and pandas' NA and NaT, are null.

    A float is rounded to the nearest number of its type. `first_misfit` finds a refused value.

    Raises:
        MISFITS: a value has the wrong class, or is out of the type's range.
    """
    classes = set(map(type, values))
    nulls = {cls for cls in classes if is_null_class(cls)}
    if not nulls <= {type(None)}:
        values = [None if type(value) in nulls else value for value in values]
    classes -= nulls
    if pa.types.is_list(want):
        return _lists(values, classes, want)
    if pa.types.is_map(want):
        return _maps(values, classes, want)
    if pa.types.is_struct(want):
        return _structs(values, classes, want)
    traits = traits_of(plain_kind(want))
    assert traits is not None
    for cls in classes:
        if not traits.accepts(cls):
            raise TypeError(f"{with_article(cls)} is not {traits.wanted}")
    odd_integers = {cls for cls in classes if is_integer(cls)} - {int}
    if odd_integers:  # pyarrow reads large unsigned integers of NumPy as negative
        values = [index(value) if type(value) in odd_integers else value for value in values]
    row = arrow_traits(want)
    if row is None:
        return pa.array(values, want, from_pandas=False)
    return row.from_python(values, classes, want)


def first_misfit(values: Sequence[Any], want: pa.DataType) -> tuple[int, Any, str]:
    """Return index, value and reason of the first value that `python_array` refuses.

    The reason says which value of the wanted type is the same, if there is one.
    """
    for place, value in enumerate(values):
        try:
            python_array([value], want)
        except MISFITS as error:
            return place, value, f"{str(error).splitlines()[0]}{_instead(value, want)}"
    return 0, values[0], f"it does not fit {want} together with the other values"


def with_article(cls: type) -> str:
    """Return the name of a class as a message says it, such as `an int`."""
    return f"{'an' if cls.__name__[0] in 'aeiou' else 'a'} {cls.__name__}"


def _instead(value: Any, want: pa.DataType) -> str:
    """Return the value to give in place of one that does not fit: the same, in the type's class.

    >>> _instead("2026-01-31", pa.date32()), _instead("n/a", pa.int64()), _instead(1.5, pa.int32())
    ('; give datetime.date(2026, 1, 31)', '', '')
    """
    for same in _same(value):
        try:
            python_array([same], want)
        except MISFITS:
            continue
        return f"; give {same!r}"
    return ""


def _same(value: Any) -> Iterator[Any]:
    """Yield the values of other classes that say the same."""
    for convert in _CONVERSIONS.get(type(value), ()):
        try:
            yield convert(value)
        except (ValueError, ArithmeticError):
            continue


def _whole(value: float) -> int:
    if not value.is_integer():
        raise ValueError
    return int(value)


def _day(value: datetime) -> date:
    if value.time() != time.min:
        raise ValueError
    return value.date()


_CONVERSIONS: Final[Mapping[type, Sequence[Callable[[Any], Any]]]] = {
    str: (int, float, Decimal, date.fromisoformat, datetime.fromisoformat),
    int: (str,),
    float: (_whole, lambda value: Decimal(repr(value)), str),
    Decimal: (str,),
    bytes: (bytes.decode,),
    datetime: (_day,),
}
"""How a value of a class is written in others, where nothing of it is lost."""


def _lists(values: Sequence[Any], classes: Collection[type], want: pa.DataType) -> pa.Array:
    for cls in classes:
        if issubclass(cls, str | bytes | bytearray | memoryview | Mapping) or not (
            hasattr(cls, "__len__") and hasattr(cls, "__iter__")
        ):
            raise TypeError(f"{with_article(cls)} is not a list")
    elements = list(chain.from_iterable(value for value in values if value is not None))
    held = python_array(elements, want.value_type)
    offsets, mask = _layout(values)
    return pa.ListArray.from_arrays(offsets, held, type=want, mask=mask)


def _maps(values: Sequence[Any], classes: Collection[type], want: pa.DataType) -> pa.Array:
    """Convert mappings, and lists of pairs, Arrow's form of maps."""
    for cls in classes:
        if not issubclass(cls, Mapping | list | tuple):
            raise TypeError(f"{with_article(cls)} is not a dict")
    listed = [list(value.items()) if isinstance(value, Mapping) else value for value in values]
    pairs = list(chain.from_iterable(value for value in listed if value is not None))
    for cls in set(map(type, pairs)):
        if not issubclass(cls, list | tuple):
            raise TypeError(f"{with_article(cls)} is not a pair of key and value")
    if set(map(len, pairs)) - {2}:
        raise ValueError("a map needs pairs of key and value")
    keys = python_array([pair[0] for pair in pairs], want.key_type)
    items = python_array([pair[1] for pair in pairs], want.item_type)
    if keys.null_count:
        raise ValueError("a key of a map is null")
    offsets, mask = _layout(listed)
    return pa.MapArray.from_arrays(offsets, keys, items, type=want, mask=mask)


def _structs(values: Sequence[Any], classes: Collection[type], want: pa.DataType) -> pa.Array:
    """Convert mappings; a part that is missing is null."""
    for cls in classes:
        if not issubclass(cls, Mapping):
            raise TypeError(f"{with_article(cls)} is not a dict")
    unknown = {name for value in values if value is not None for name in value} - {*want.names}
    if unknown:
        raise ValueError(f"a dict has {[*unknown]}, and its parts are {want.names}")
    parts = [
        python_array([None if each is None else each.get(part.name) for each in values], part.type)
        for part in want.fields
    ]
    mask = pa.array([value is None for value in values], pa.bool_())
    return pa.StructArray.from_arrays(parts, fields=want.fields, mask=mask)


def _layout(values: Sequence[Any]) -> tuple[pa.Array, pa.Array | None]:
    """Return the offsets of each list among all elements, and which lists are null."""
    lengths = (0 if value is None else len(value) for value in values)
    offsets = pa.array([0, *accumulate(lengths)], pa.int32())
    nulls = [value is None for value in values]
    return offsets, pa.array(nulls) if any(nulls) else None
