"""Processing of rows when they are read: filters, then aggregations, then a function.

Filters drop rows, and aggregations combine rows with equal keys. Both have upstream's syntax (rules
PRC-1 to PRC-4), with additional operations: first, last and count. Whitespace around names and
brackets is ignored. A function is written by the user; here only its name is known (rule PRC-6).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Final, Literal, TypeVar, cast, get_args

from sleeper.errors import BadRequest, PropertiesInvalid
from sleeper.model.column_types import traits_of
from sleeper.model.schema import (
    Field,
    FieldType,
    MapType,
    Schema,
    type_to_text,
)

T = TypeVar("T")

Operation = Literal["sum", "min", "max", "map_sum", "map_min", "map_max", "first", "last", "count"]
End = Literal["first", "last"]

FILTERS: Final = "sleeper.table.filters"
AGGREGATIONS: Final = "sleeper.table.aggregations"
SUMS_TOO_LARGE: Final = "sleeper.table.sums.too.large"
FUNCTION: Final = "sleeper.table.function"

_KNOW_NULLS = ("first", "last", "count")


@dataclass(frozen=True, slots=True)
class AgeOff:
    """Keeps a row while its `field` is not null and younger than `max_age_ms` (rule PRC-2).

    Attributes:
        field: A long (milliseconds since 1970 in UTC), a date (its midnight in UTC), or a
            timestamp (UTC if it has no zone). It may be a key field.
        max_age_ms: The age from which on a row is dropped.
    """

    field: str
    max_age_ms: int


@dataclass(frozen=True, slots=True)
class Aggregation:
    """How one field is aggregated when several rows become one.

    Attributes:
        operation: `sum`, `min`, `max`; the `map_` operations apply to each entry of a map. `first`
            and `last` take the value of the row with the least or greatest sort key. `count`
            counts the rows that had a value when they were written.
        field: A value field.
    """

    operation: Operation
    field: str


@dataclass(frozen=True, slots=True)
class TableFunction:
    """A user's function over rows in key order, by its name. It is imported when it is needed.

    Anybody who may change the table's properties can choose this code. So it runs only if the
    caller who opened the instance allows its module.

    Attributes:
        module: The module's full name.
        name: The function's name in it.
        allowed: Patterns of modules that may be imported here, such as `my_package.*`.
    """

    module: str
    name: str
    allowed: tuple[str, ...] = ()

    @property
    def is_allowed(self) -> bool:
        """Whether a pattern matches the module's name."""
        return any(fnmatchcase(self.module, pattern) for pattern in self.allowed)

    def __str__(self) -> str:
        return f"{self.module}:{self.name}"


@dataclass(frozen=True, slots=True)
class Processing:
    """A table's filters, then its aggregations, then its function (rule PRC-1).

    Attributes:
        filters: A row is kept if every filter keeps it.
        aggregations: One for every value field, or none at all.
        function: Applied to the remaining rows; None for no function.
        refuses_large_sums: Whether a query is refused for a sum of decimals that does not fit its
            field.
    """

    filters: tuple[AgeOff, ...] = ()
    aggregations: tuple[Aggregation, ...] = ()
    function: TableFunction | None = None
    refuses_large_sums: bool = False

    def allowing(self, patterns: Iterable[str]) -> Processing:
        """Return a copy whose function may run if a pattern matches its module."""
        if self.function is None:
            return self
        return replace(self, function=replace(self.function, allowed=tuple(patterns)))

    @property
    def is_identity(self) -> bool:
        """True if rows are not changed."""
        return not self.filters and not self.aggregations and self.function is None

    def check_upsert(self, table_name: str) -> None:
        """Check that rows of a table can be replaced by others of their keys (rule DEL-3).

        Raises:
            BadRequest: they cannot: rows of equal keys are united.
        """
        if self.aggregations or self.function is not None:
            raise BadRequest(
                f"table {table_name!r} unites rows of equal keys, so an upsert would replace sums "
                "by their parts. Use ingest() to add to them, or delete() and then ingest()"
            )

    @property
    def needed_fields(self) -> tuple[str, ...]:
        """The fields that must be read in any case, besides the keys.

        These are the fields of filters. An aggregation needs its field only if it is requested. A
        function may read all fields, which are not listed here (`needs_all_fields`).
        """
        return tuple(dict.fromkeys(age_off.field for age_off in self.filters))

    @property
    def needs_all_fields(self) -> bool:
        """True if all fields must be read in any case."""
        return self.function is not None

    @property
    def kept_end(self) -> End | None:
        """Which row of a row key gives its sort keys to the aggregated row: the first, or the last.

        None if only rows with equal sort keys are combined.
        """
        operations = {aggregation.operation for aggregation in self.aggregations}
        return "first" if "first" in operations else "last" if "last" in operations else None

    @property
    def counted_fields(self) -> tuple[str, ...]:
        """The fields that count rows whose value was not null."""
        return tuple(each.field for each in self.aggregations if each.operation == "count")


def checked_function_patterns(patterns: object, argument: str) -> tuple[str, ...]:
    """Check patterns of modules whose functions may run, and return them.

    Args:
        patterns: A list of them, or text with commas between them.
        argument: The name of the argument, for errors.

    Raises:
        BadRequest: they are not such a list, or one has characters that no module name has.
    """
    if isinstance(patterns, str):
        patterns = [pattern.strip() for pattern in patterns.split(",") if pattern.strip()]
    if not isinstance(patterns, Iterable):
        raise BadRequest(f"{argument} must be a list of modules, not {patterns!r}")
    checked = tuple(patterns)
    for pattern in checked:
        if not isinstance(pattern, str) or not _PATTERN.fullmatch(pattern):
            raise BadRequest(
                f"{argument} has {pattern!r}, which is not a module: give names such as "
                "'my_package.cleaning', or patterns such as 'my_package.*'"
            )
    return checked


def allowed_functions(given: object, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the patterns of modules that `allow_functions` is given, or the environment has.

    Raises:
        BadRequest: they are not a list of modules.
    """
    if given is None:
        return checked_function_patterns(environment.get(_ALLOW, ""), _ALLOW)
    if isinstance(given, str):
        raise BadRequest(f"allow_functions is a list of modules; did you mean [{given!r}]?")
    return checked_function_patterns(given, "allow_functions")


_ALLOW = "SLEEPER_ALLOW_FUNCTIONS"
_PATTERN = re.compile(r"[\w.*?]+")


def parse_processing(
    filters: str | None, aggregations: str | None, schema: Schema, function: str | None = None
) -> Processing:
    """Read the properties `sleeper.table.filters`, `.aggregations` and `.function`.

    Whether the function exists is not checked.

    >>> from sleeper.model.schema import Field, Primitive
    >>> schema = Schema(
    ...     row_keys=(Field("id", Primitive.STRING),), values=(Field("n", Primitive.LONG),)
    ... )
    >>> parse_processing(None, "SUM(n)", schema).aggregations
    (Aggregation(operation='sum', field='n'),)

    Raises:
        PropertiesInvalid: the syntax is wrong, or they do not fit the schema or each other. All
            three are checked before it is raised.
    """
    failures: dict[str, str] = {}

    def checked(name: str, text: str | None, parse: Callable[[str], T]) -> T | None:
        try:
            return parse((text or "").strip())
        except ValueError as error:
            failures[name] = f"{name} is {text!r}: {error}."
            return None

    processing = Processing(
        filters=checked(FILTERS, filters, lambda text: _parse_filters(text, schema)) or (),
        aggregations=checked(
            AGGREGATIONS, aggregations, lambda text: _parse_aggregations(text, schema)
        )
        or (),
        function=checked(FUNCTION, function, _parse_function),
    )
    checked(FILTERS, filters, lambda _: _check_together(processing))
    if failures:
        raise PropertiesInvalid(failures)
    return processing


def _parse_filters(text: str, schema: Schema) -> tuple[AgeOff, ...]:
    if not text:
        return ()
    found = re.fullmatch(r"ageoff\s*\(\s*([^,]+?)\s*,\s*([0-9]+)\s*\)", text, re.IGNORECASE)
    if found is None or int(found[2]) >= 2**63:
        raise ValueError(f"Sleeper table filter not set to match ageOff(column,age), was: {text}")
    name = found[1]
    by_name = {field.name: field for field in schema.fields}
    if name not in by_name:
        raise ValueError(f"the schema has no field {name!r}; it has {', '.join(by_name)}")
    kind = by_name[name].type
    traits = traits_of(kind)
    if traits is None or traits.ticks_at is None:
        raise ValueError(
            f"rows cannot age by field {name!r} of {type_to_text(kind)}, only by a LongType of "
            "milliseconds since 1970, a date or a timestamp"
        )
    return (AgeOff(name, int(found[2])),)


def _parse_aggregations(text: str, schema: Schema) -> tuple[Aggregation, ...]:
    if not text:
        return ()
    found = tuple(_split_aggregations(text))
    _check_against_schema(found, schema)
    by_name = {field.name: field for field in schema.values}
    for aggregation in found:
        _check_operation(aggregation, by_name[aggregation.field])
    _check_ends(found, schema)
    return found


def _split_aggregations(text: str) -> Iterator[Aggregation]:
    """Yield each `op(field)`. A field's name may contain anything but `),`."""
    for part in re.split(r"(?<=\))\s*,", text):
        if not part.strip():
            continue
        found = re.fullmatch(r"\s*(\w+)\s*\(\s*(.*?)\s*\)\s*", part, re.DOTALL)
        operation = found[1].lower() if found else ""
        if found is None or operation not in get_args(Operation):
            wrong = found[1] if found else part.strip()
            raise ValueError(
                f"Unable to parse operand. Operand: {wrong}; wanted is op(field), with op one of "
                f"{', '.join(get_args(Operation))}"
            )
        yield Aggregation(cast("Operation", operation), found[2])


def _check_against_schema(found: tuple[Aggregation, ...], schema: Schema) -> None:
    """Check which fields are aggregated; messages are upstream's (rule PRC-4)."""
    fields = [aggregation.field for aggregation in found]
    values = [field.name for field in schema.values]
    keys = [name for name in fields if name in schema.key_names]
    repeated = [name for name, count in Counter(fields).items() if count > 1]
    missing = [name for name in values if name not in fields]
    unknown = [name for name in fields if name not in values]
    know_nulls = [each.field for each in found if each.operation in _KNOW_NULLS]
    nullable = [
        field.name for field in schema.values if field.nullable and field.name not in know_nulls
    ]
    for wrong, message in (
        (
            keys,
            "Column for aggregation not allowed to be a Row Key or Sort Key. Column names: ",
        ),
        (repeated, "Not allowed duplicate columns for aggregation. Column name: "),
        (missing, "Not all value fields have aggregation declared. Missing columns: "),
        (unknown, "Not all aggregated fields are declared in the schema. Missing fields: "),
        (
            nullable,
            "Aggregation is not supported for nullable value fields. Nullable fields: ",
        ),
    ):
        if wrong:
            raise ValueError(message + ", ".join(wrong))


def _check_operation(aggregation: Aggregation, field: Field) -> None:
    operation, kind = aggregation.operation, field.type
    traits = traits_of(kind)
    if operation in ("first", "last"):
        return
    if operation == "count":
        fits = traits is not None and traits.counts
        wanted = "an IntType or a LongType, which becomes the number"
    elif isinstance(kind, MapType):
        fits = operation.startswith("map_") and _is_number(kind.value) and not kind.nullable
        wanted = (
            "map_sum, map_min or map_max, and numbers as the map's values, which may not be null"
        )
    elif operation == "sum":
        fits = _is_number(kind)
        wanted = "a number"
    else:
        fits = not operation.startswith("map_") and traits is not None and traits.is_ordered
        wanted = "a map" if operation.startswith("map_") else "a type with an order"
    if not fits:
        raise ValueError(
            f"{operation} does not work on field {field.name!r} of {type_to_text(kind)}: "
            f"it wants {wanted}"
        )


def _check_ends(found: tuple[Aggregation, ...], schema: Schema) -> None:
    """Check that a table with `first` or `last` has sort keys, and has only one of the two."""
    ends = sorted({each.operation for each in found} & {"first", "last"})
    if len(ends) > 1:
        raise ValueError(
            "first and last cannot both be used in one table: one row is kept for each row key, "
            "and it has either the least or the greatest sort key"
        )
    if ends and not schema.sort_keys:
        raise ValueError(
            f"{ends[0]} needs sort keys, which order the rows of a row key, and the schema has none"
        )


def _parse_function(text: str) -> TableFunction | None:
    if not text:
        return None
    module, _, name = text.partition(":")
    if not (name.isidentifier() and all(part.isidentifier() for part in module.split("."))):
        raise ValueError("it must be package.module:function, such as my_rows.cleaning:redact")
    return TableFunction(module, name)


def _check_together(processing: Processing) -> None:
    """Check that no field is used by `ageOff` and by `count`: a count is not a time."""
    counted = processing.counted_fields
    for name in (age_off.field for age_off in processing.filters if age_off.field in counted):
        raise ValueError(
            f"rows cannot age by field {name!r}, because count({name}) replaces its times by a "
            "number of rows"
        )


def _is_number(kind: FieldType) -> bool:
    traits = traits_of(kind)
    return traits is not None and traits.is_number
