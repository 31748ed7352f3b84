"""Turns the arguments of a query into exact keys or canonical regions.

key="N123"                      one row key, exactly
key=("a", 1)                    a composite one, or a prefix of it
key={"id": "a"}                 by field name; fields left out may have any value
keys=[...]                      many of them
range={"id": ("a", "b")}        [min, max) on any row key fields; None is no limit
range={"id": ("a", True, "b", True)}   saying whether each end belongs
regions=[{...}, {...}]          several at once; overlaps are read once
prefix={"id": "ab"}             values of a string or bytes field that begin so; alone, or with
                                key=, range= or regions= of other fields

Without any of them, all rows are returned. An empty list returns no rows. None is refused: usually
it is a value that is missing by mistake, and it would read the whole table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from difflib import get_close_matches
from enum import Enum
from operator import index
from typing import Any, Final

from sleeper.errors import BadRequest, QueryInvalid
from sleeper.model.column_types import plain_instant
from sleeper.model.keys import Key, checked_value
from sleeper.model.ranges import (
    Range,
    Region,
    canonical_range,
    exact_range,
    prefix_range,
    region_of,
)
from sleeper.model.row_deletes import regions_without
from sleeper.model.schema import Schema

RangeRequest = tuple[Any, Any] | tuple[Any, bool, Any, bool] | Range
RegionRequest = Mapping[str, RangeRequest]


class NotGiven(Enum):
    """The type of `NOT_GIVEN`."""

    NOT_GIVEN = "not given"

    def __repr__(self) -> str:
        return "<not given>"


NOT_GIVEN: Final = NotGiven.NOT_GIVEN
"""The value of an argument that is left out, where None is refused as a mistake."""

_WANTED = {
    "key": "a value, a tuple of values, or {field: value}",
    "keys": "a list or array of whole row keys",
    "range": "{field: (min, max)}",
    "regions": "a list of {field: (min, max)}",
    "prefix": "{field: prefix}",
}


_NAMED_MAX: Final = 20
_NAME_MAX: Final = 200
_ROWS_MAX: Final = 2**63 - 1
"""Arrow counts rows up to here; a greater limit limits nothing."""


@dataclass(frozen=True, slots=True)
class LeafQuery:
    """The regions to read of one leaf, and the files that may contain their rows.

    Attributes:
        leaf_id: The leaf partition.
        regions: The requested regions, intersected with the leaf's region.
        filenames: Files that the leaf or one of its ancestors references, ordered.
        hidden: Regions of deleted rows, by file; only of files that have some.
        key_files: By file, the files whose keys are deleted from it; only of files that have some.

    Source: rule QRY-1.
    """

    leaf_id: str
    regions: tuple[Region, ...]
    filenames: tuple[str, ...]
    hidden: Mapping[str, tuple[Region, ...]] = field(default_factory=dict)
    key_files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def regions_of(self, filename: str) -> tuple[Region, ...]:
        """Return the regions to read of a file: none of its deleted rows are inside."""
        hidden = self.hidden.get(filename)
        return self.regions if hidden is None else regions_without(self.regions, hidden)


@dataclass(frozen=True, slots=True)
class LeafLookup:
    """Which of the requested keys belong to one leaf, and the files that may contain them.

    It may be several leaves with the same files.

    Attributes:
        leaf_id: The leaf partition; of several, the first.
        key_indices: Indices of its keys in the sorted list of requested keys: a slice, or a list
            of indices if leaves interleave.
        filenames: Files that the leaf or one of its ancestors references, ordered; none in which
            these keys are deleted, as far as the state tells.
        key_files: By file, the files whose keys are deleted from it; only of files that have some.
    """

    leaf_id: str
    key_indices: slice | tuple[int, ...]
    filenames: tuple[str, ...]
    key_files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def exact_key(schema: Schema, key: object) -> Key | None:
    """Return a complete row key as a tuple, or None if `key` is only a part of one.

    >>> from sleeper.model.schema import Field, Primitive
    >>> exact_key(Schema(row_keys=[Field("id", Primitive.LONG)]), 7)
    (7,)

    Raises:
        QueryInvalid: a field is unknown, a value has the wrong type, or there are too many.
    """
    values = checked_key(schema, key)
    return tuple(values.values()) if len(values) == len(schema.row_keys) else None


def checked_key(schema: Schema, key: object) -> dict[str, Any]:
    """Return the values of a row key, or of a part of it, by field, in the order of the fields.

    Raises:
        QueryInvalid: a field is unknown, a value has the wrong type, or there are too many.
    """
    given = key_values(schema, key)
    fields = (field for field in schema.row_keys if field.name in given)
    try:
        return {field.name: checked_value(field, given[field.name]) for field in fields}
    except QueryInvalid as error:
        raise QueryInvalid(f"{error}{_complete_key(schema, key)}") from None


def _complete_key(schema: Schema, key: object) -> str:
    """Return how a key of several fields is given, for the error of a value that does not fit."""
    names = schema.row_key_names
    is_complete = isinstance(key, tuple | list) and len(key) == len(names)
    if len(names) == 1 or isinstance(key, Mapping) or is_complete:
        return ""
    return (
        f". A row key of this table has {len(names)} fields: give key=({', '.join(names)}), or "
        f"some of them by name, as in key={{{names[0]!r}: ...}}"
    )


def key_values(schema: Schema, key: object) -> Mapping[str, Any]:
    """Return the values of a row key, or of a part of it, by field; they are not checked.

    Raises:
        QueryInvalid: a field is unknown, or there are too many values.
    """
    names = schema.row_key_names
    if isinstance(key, Mapping):
        _check_names(schema, key)
        return key
    values = tuple(key) if isinstance(key, tuple | list) else (key,)
    if len(values) > len(names):
        raise QueryInvalid(
            f"a row key has {len(names)} values ({', '.join(names)}), not {len(values)}: {key!r}; "
            f"give key=({', '.join(names)})"
        )
    return dict(zip(names, values, strict=False))


def key_region(schema: Schema, key: object) -> Region:
    """Return the region of all rows whose row key has the values of `key`.

    Raises:
        QueryInvalid: as for `exact_key`; also if no value is given.
    """
    given = checked_key(schema, key)
    if not given:
        raise QueryInvalid(f"a key needs a value for {' or '.join(schema.row_key_names)}")
    ranges = {f.name: exact_range(f, given[f.name]) for f in schema.row_keys if f.name in given}
    return region_of(schema, ranges)


def region_from_request(schema: Schema, request: RegionRequest) -> Region:
    """Return the canonical region of `{field: (min, max)}` (rules PRT-1, PRT-4, INT-5).

    Raises:
        QueryInvalid: a field is unknown, a type is wrong, a range has the wrong form, or min is
            above max.
    """
    if not isinstance(request, Mapping):
        raise QueryInvalid(
            f"a region is a mapping of field to (min, max), not {request!r:.200}: give "
            f"{{{schema.row_key_names[0]!r}: (min, max)}}, where None is no limit"
        )
    _check_names(schema, request)
    fields = {field.name: field for field in schema.row_keys}
    ranges = {}
    for name, given in request.items():
        field = fields[name]
        match given:
            case Range():
                ranges[name] = canonical_range(field, given.min, given.max)
            case (low, bool(min_in), high, bool(max_in)):
                ranges[name] = canonical_range(
                    field, low, high, min_inclusive=min_in, max_inclusive=max_in
                )
            case (low, high):
                ranges[name] = canonical_range(field, low, high)
            case _:
                raise QueryInvalid(
                    f"the range of {name!r} must be (min, max) or "
                    f"(min, min_inclusive, max, max_inclusive), not {given!r}"
                )
    return region_of(schema, ranges)


def asked_by(
    *,
    key: object,
    keys: object,
    range: object,  # noqa: A002 - the field's own word
    regions: object,
    prefix: object = NOT_GIVEN,
) -> str | None:
    """Return which of the first four arguments is given; None, which means all rows, if none is.

    Raises:
        QueryInvalid: several of the four are given, one of all is None, or a prefix is given with
            keys.
    """
    all_four = {"key": key, "keys": keys, "range": range, "regions": regions}
    given = {name: value for name, value in all_four.items() if value is not NOT_GIVEN}
    for name, value in {**given, "prefix": prefix}.items():
        if value is None:
            raise QueryInvalid(
                f"{name}=None asks for nothing: give {_WANTED[name]}, or leave {name}= out to ask "
                "for all rows"
            )
    if len(given) > 1:
        raise QueryInvalid(
            f"ask by one of key, keys, range and regions, not by several: {', '.join(given)}"
        )
    if prefix is not NOT_GIVEN and "keys" in given:
        raise QueryInvalid(
            "keys= and prefix= contradict each other, because keys are complete row keys: give "
            "prefix= with key=, range= or regions= of other fields"
        )
    return next(iter(given), None)


def asked_regions(
    schema: Schema,
    key_range: object,
    regions: object,
    *,
    key: object = NOT_GIVEN,
    prefix: object = NOT_GIVEN,
) -> list[Region]:
    """Return the canonical regions of `range`, `regions` or `key`; the whole table without any.

    Args:
        schema: The table's schema.
        key_range, regions, key: At most one of them is given.
        prefix: The rows inside the others whose fields also have these prefixes, if it is given.

    Raises:
        QueryInvalid: as for `region_from_request`; also if `regions` is not a list, or a prefix is
            of a field that has another condition or is no string or bytes of the row key.
    """
    starts = {} if prefix is NOT_GIVEN else _prefix_ranges(schema, prefix)
    if key is not NOT_GIVEN:
        values = key_values(schema, key)
        if not values:
            raise QueryInvalid(f"a key needs a value for {' or '.join(schema.row_key_names)}")
        fields = [field for field in schema.row_keys if field.name in values]
        requests: Iterable[Any] = [{f.name: exact_range(f, values[f.name]) for f in fields}]
    elif regions is NOT_GIVEN:
        requests = [{} if key_range is NOT_GIVEN else key_range]
    elif isinstance(regions, Mapping):
        raise QueryInvalid(f"regions is a list of ranges; did you mean range={regions!r}?")
    elif isinstance(regions, str | bytes) or not isinstance(regions, Iterable):
        raise QueryInvalid(f"regions must be {_WANTED['regions']}, not {regions!r}")
    else:
        requests = regions
    return [region_from_request(schema, _with_starts(request, starts)) for request in requests]


def _prefix_ranges(schema: Schema, prefix: object) -> dict[str, Range]:
    """Return the ranges of `{field: prefix}`."""
    if isinstance(prefix, str | bytes):
        raise QueryInvalid(
            f"prefix names its field; did you mean prefix={{{schema.row_key_names[0]!r}: "
            f"{prefix!r}}}?"
        )
    if not isinstance(prefix, Mapping) or not prefix:
        raise QueryInvalid(f"prefix must be {_WANTED['prefix']}, not {prefix!r}")
    _check_names(schema, prefix)
    fields = [field for field in schema.row_keys if field.name in prefix]
    return {field.name: prefix_range(field, prefix[field.name]) for field in fields}


def _with_starts(request: Any, starts: Mapping[str, Range]) -> Any:
    """Add the ranges of prefixes to a request of other fields."""
    if not starts or not isinstance(request, Mapping):
        return request
    for name in starts:
        if name in request:
            raise QueryInvalid(
                f"field {name!r} has a prefix and another condition too: give prefix= with key=, "
                "range= or regions= of other fields, or put both into one range"
            )
    return {**request, **starts}


def checked_limit(limit: object) -> int | None:
    """Check `limit` and return it: a number of rows, or None for all.

    Raises:
        QueryInvalid: it is not a whole number, or negative.
    """
    if limit is None:
        return None
    if isinstance(limit, bool) or not hasattr(limit, "__index__"):
        raise QueryInvalid(f"limit must be a number of rows, not {limit!r}")
    if index(limit) < 0:
        raise QueryInvalid(f"limit must not be negative, unlike {limit!r}; 0 returns no rows")
    return min(index(limit), _ROWS_MAX)


def checked_as_of(as_of: object, name: str = "as_of") -> int | datetime | None:
    """Check `as_of` and return it: a transaction number, an aware time, or None for the newest.

    Raises:
        QueryInvalid: it is neither a whole number nor a datetime with a time zone.
    """
    if as_of is None:
        return None
    if isinstance(as_of, datetime):
        try:
            return plain_instant(as_of)
        except ValueError as error:
            raise QueryInvalid(
                f"{name} must have a time zone and be between the years 1 and 9999 in UTC, unlike "
                f"{as_of!r}: {error}. Give it a zone, such as {name}=datetime(2026, 1, 31, 12, "
                "tzinfo=UTC); astimezone() of a datetime gives it this machine's"
            ) from None
    if isinstance(as_of, bool) or not hasattr(as_of, "__index__"):
        raise QueryInvalid(
            f"{name} must be a transaction number or a datetime with a time zone, not {as_of!r}: "
            f"for a time give {name}=datetime(2026, 1, 31, 12, tzinfo=UTC), for a number see "
            "table.history()"
        )
    return index(as_of)


def checked_max_age(max_age: object) -> float | None:
    """Check `max_age` and return it in seconds; None for the table's property.

    Raises:
        QueryInvalid: it is not a number of seconds or a timedelta, or negative.
    """
    if max_age is None:
        return None
    if isinstance(max_age, timedelta):
        seconds = max_age.total_seconds()
    elif isinstance(max_age, int | float) and not isinstance(max_age, bool):
        seconds = float(max_age)
    else:
        raise QueryInvalid(f"max_age must be a number of seconds or a timedelta, not {max_age!r}")
    if not seconds >= 0:
        raise QueryInvalid(f"max_age must not be negative, unlike {max_age!r}")
    return seconds


def checked_columns(schema: Schema, columns: Sequence[str] | None) -> tuple[str, ...]:
    """Return the columns of the result: the requested ones, in that order, or all in the table's.

    Raises:
        QueryInvalid: a name is unknown or repeated, or the list is empty.
    """
    if columns is None:
        return schema.columns
    if isinstance(columns, str):
        raise QueryInvalid(f"columns is a list of names; did you mean [{columns!r}]?")
    if not isinstance(columns, Iterable):
        raise QueryInvalid(f"columns must be a list of names of columns, not {columns!r}")
    columns = tuple(columns)
    unknown = [name for name in columns if name not in schema.names]
    if unknown:
        near = get_close_matches(str(unknown[0]), schema.columns, n=1)
        meant = f"did you mean {near[0]!r}? " if near else ""
        raise QueryInvalid(
            f"the table has no column {_first_few(map(repr, unknown))}; {meant}"
            f"{'I' if meant else 'i'}t has {_first_few(schema.columns)}"
        )
    if not columns or len(set(columns)) < len(columns):
        raise QueryInvalid(
            f"columns must name at least one column, each once: {_first_few(columns) or 'none'}"
        )
    return tuple(columns)


def _first_few(names: Iterable[str]) -> str:
    """Return names for a message: the first twenty, and how many there are more."""
    every = [*names]
    more = f" and {len(every) - _NAMED_MAX:,} more" if len(every) > _NAMED_MAX else ""
    return f"{', '.join(each[:_NAME_MAX] for each in every[:_NAMED_MAX])}{more}"


def unknown_arguments(schema: Schema, given: Mapping[str, object]) -> QueryInvalid:
    """Return the error for arguments of a query that there are not, such as names of fields."""
    name, value = next(iter(given.items()))
    if name in schema.row_key_names:
        instead = f"a field of the row key is given by key={{{name!r}: {value!r:.100}}}"
    elif name in schema.names:
        instead = f'a condition on a field is where="{name} = ..."'
    else:
        instead = "rows are asked for by key, keys, range, regions, prefix and where"
    return QueryInvalid(f"query() has no argument {name!r}: {instead}")


def _check_names(schema: Schema, given: Mapping[str, object]) -> None:
    for name in given:
        if name not in schema.row_key_names:
            hint = (
                f" (a value or sort key field: filter the result instead, by where='{name} = ...')"
            )
            raise QueryInvalid(
                f'Key "{name}" was not a row key field in the table schema'
                f"{hint if name in schema.names else ''}; "
                f"row keys are {', '.join(schema.row_key_names)}"
            )


def checked_transaction(number: object) -> int:
    """Return the number of a transaction.

    Raises:
        BadRequest: it is none.
    """
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise BadRequest(
            "if_unchanged_since must be the number of a transaction, such as the `transaction` of "
            f"an answer, and not {number!r}"
        )
    return number
