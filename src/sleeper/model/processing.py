"""What happens to rows whenever they are read: filters drop rows, aggregations unite them.

Both are text properties of a table with upstream's syntax (spec PRC-1 to PRC-4). Whitespace
around names and brackets is ignored.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, cast, get_args

from sleeper.errors import PropertiesInvalid
from sleeper.model.schema import (
    DecimalType,
    Field,
    FieldType,
    ListType,
    MapType,
    Primitive,
    Schema,
    type_to_text,
)

Operation = Literal["sum", "min", "max", "map_sum", "map_min", "map_max"]

FILTERS: Final = "sleeper.table.filters"
AGGREGATIONS: Final = "sleeper.table.aggregations"

_NUMBERS = (Primitive.INT, Primitive.LONG, Primitive.FLOAT, Primitive.DOUBLE)
_ORDERED = (
    *_NUMBERS,
    Primitive.STRING,
    Primitive.BYTES,
    Primitive.DATE,
    Primitive.TIMESTAMP,
    Primitive.TIMESTAMP_NTZ,
)
_AGEING = (Primitive.LONG, Primitive.DATE, Primitive.TIMESTAMP, Primitive.TIMESTAMP_NTZ)


@dataclass(frozen=True, slots=True)
class AgeOff:
    """Keeps a row while its `field` is not null and younger than `max_age_ms` (spec PRC-2).

    Attributes:
        field: A long of milliseconds since 1970 in UTC, a date (its midnight in UTC), or a
            timestamp (one without a zone is taken as UTC). It may be a key field.
        max_age_ms: A row exactly this old is dropped.
    """

    field: str
    max_age_ms: int


@dataclass(frozen=True, slots=True)
class Aggregation:
    """How the values of one field become one, where rows have equal row and sort keys.

    Attributes:
        operation: `sum`, `min`, `max`; the `map_` ones work on each entry of a map.
        field: A value field.
    """

    operation: Operation
    field: str


@dataclass(frozen=True, slots=True)
class Processing:
    """A table's filters, then its aggregations (spec PRC-1).

    Attributes:
        filters: A row is kept when all of them keep it.
        aggregations: One for every value field, or none at all.
    """

    filters: tuple[AgeOff, ...] = ()
    aggregations: tuple[Aggregation, ...] = ()

    @property
    def is_identity(self) -> bool:
        """True when rows come out as they went in."""
        return not self.filters and not self.aggregations

    @property
    def needed_fields(self) -> tuple[str, ...]:
        """The fields that must be read whether or not they are asked for, beside the keys.

        Filters look at theirs. An aggregation needs its own field only when that is asked for.
        """
        return tuple(dict.fromkeys(age_off.field for age_off in self.filters))


def parse_processing(filters: str | None, aggregations: str | None, schema: Schema) -> Processing:
    """Read the properties `sleeper.table.filters` and `sleeper.table.aggregations`.

    >>> from sleeper.model.schema import Field, Primitive
    >>> schema = Schema(
    ...     row_keys=(Field("id", Primitive.STRING),), values=(Field("n", Primitive.LONG),)
    ... )
    >>> parse_processing(None, "SUM(n)", schema).aggregations
    (Aggregation(operation='sum', field='n'),)

    Raises:
        PropertiesInvalid: they are not written as they should be, or do not fit the schema.
            Both properties are checked before it is raised.
    """
    failures: dict[str, str] = {}
    kept: tuple[AgeOff, ...] = ()
    united: tuple[Aggregation, ...] = ()
    try:
        kept = _parse_filters(filters or "", schema)
    except ValueError as error:
        failures[FILTERS] = f"{FILTERS} is {filters!r}: {error}."
    try:
        united = _parse_aggregations(aggregations or "", schema)
    except ValueError as error:
        failures[AGGREGATIONS] = f"{AGGREGATIONS} is {aggregations!r}: {error}."
    if failures:
        raise PropertiesInvalid(failures)
    return Processing(kept, united)


def _parse_filters(text: str, schema: Schema) -> tuple[AgeOff, ...]:
    if not text.strip():
        return ()
    found = re.fullmatch(r"\s*ageoff\s*\(\s*([^,]+?)\s*,\s*([0-9]+)\s*\)\s*", text, re.IGNORECASE)
    if found is None or int(found[2]) >= 2**63:
        raise ValueError(
            f"Sleeper table filter not set to match ageOff(column,age), was: {text.strip()}"
        )
    name = found[1]
    by_name = {field.name: field for field in schema.fields}
    if name not in by_name:
        raise ValueError(f"the schema has no field {name!r}; it has {', '.join(by_name)}")
    kind = by_name[name].type
    if kind not in _AGEING:
        raise ValueError(
            f"rows cannot age by field {name!r} of {type_to_text(kind)}, only by a LongType of "
            "milliseconds since 1970, a date or a timestamp"
        )
    return (AgeOff(name, int(found[2])),)


def _parse_aggregations(text: str, schema: Schema) -> tuple[Aggregation, ...]:
    if not text.strip():
        return ()
    found = tuple(_split_aggregations(text))
    _check_against_schema(found, schema)
    by_name = {field.name: field for field in schema.values}
    for aggregation in found:
        _check_operation(aggregation, by_name[aggregation.field])
    return found


def _split_aggregations(text: str) -> Iterator[Aggregation]:
    """Yield `op(field)` after `op(field)`. A field's name may hold anything but `),`."""
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
    """Check which fields are aggregated, with upstream's words (spec PRC-4)."""
    fields = [aggregation.field for aggregation in found]
    values = [field.name for field in schema.values]
    keys = [name for name in fields if name in schema.key_names]
    repeated = [name for name, count in Counter(fields).items() if count > 1]
    missing = [name for name in values if name not in fields]
    unknown = [name for name in fields if name not in values]
    nullable = [field.name for field in schema.values if field.nullable]
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
    if isinstance(kind, MapType):
        fits = operation.startswith("map_") and _is_number(kind.value)
        wanted = "map_sum, map_min or map_max, and numbers as the map's values"
    elif operation == "sum":
        fits = _is_number(kind)
        wanted = "a number"
    else:
        fits = not operation.startswith("map_") and (_is_number(kind) or kind in _ORDERED)
        wanted = "a map" if operation.startswith("map_") else "a type with an order"
    if not fits:
        raise ValueError(
            f"{operation} does not work on field {field.name!r} of {type_to_text(kind)}: "
            f"it wants {wanted}"
        )


def _is_number(kind: FieldType) -> bool:
    return not isinstance(kind, ListType) and (isinstance(kind, DecimalType) or kind in _NUMBERS)
