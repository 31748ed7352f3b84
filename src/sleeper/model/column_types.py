"""The types of columns: one row each, with all that is known of a type without Arrow.

`columns/type_traits.py` has the rest of each row: Arrow, Parquet and the conversion of many values.
All other modules ask these rows, and name no member of `Primitive`. So a new type is a member, and
a row in each of the two modules.

A type with parameters, as `DecimalType` is, has no one row. It needs a class and an arm in
`traits_of` here; arms that read, write and show it in `model/schema.py`, where `FieldType` names
it; arms of `arrow_type`, `plain_kind` and `fitting_kind` in `columns/type_traits.py`; and one in
`spark/data_source/schema.py`.

Order is the same everywhere: integers, dates and timestamps by value, strings by code point
(which is the order of their UTF-8 bytes), bytes unsigned, a shorter prefix first. Python's
own order of these types is exactly that, so keys are plain values and tuples of them.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache, partial
from numbers import Integral, Real
from operator import index, methodcaller
from typing import Any, Final, Literal
from uuid import UUID

from sleeper.errors import SchemaInvalid
from sleeper.html.values import NotebookHtml


class Primitive(Enum):
    """A type without parameters; the value is its name in JSON.

    `TimestampType` is a time in UTC, `TimestampNtzType` a time without a zone; both
    count microseconds. `TimeType` is a time of day and `DurationType` a length of time, both in
    microseconds, and values only. So are floats: -0.0 and NaN have no agreed order.
    """

    INT = "IntType"
    LONG = "LongType"
    STRING = "StringType"
    BYTES = "ByteArrayType"
    DATE = "DateType"
    TIMESTAMP = "TimestampType"
    TIMESTAMP_NTZ = "TimestampNtzType"
    FLOAT = "FloatType"
    DOUBLE = "DoubleType"
    BOOLEAN = "BooleanType"
    TIME = "TimeType"
    DURATION = "DurationType"


@dataclass(frozen=True, slots=True)
class DecimalType(NotebookHtml):
    """Exact decimal numbers of `precision` digits, `scale` of them after the point."""

    precision: int
    scale: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.precision <= 38 or not 0 <= self.scale <= self.precision:
            raise SchemaInvalid(
                f"DecimalType needs 1 <= precision <= 38 and 0 <= scale <= precision, "
                f"not precision {self.precision}, scale {self.scale}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyTraits:
    """What makes a type fit for keys.

    An item is a value as an integer or bytes of the same order: what sketches and bounds of pages
    hold, and Parquet stores.

    Attributes:
        smallest: The least value (rule SCH-7).
        largest: The greatest value; None if there is none.
        following: Returns the least value above one that is not the greatest (rule PRT-2).
        plain: Returns an accepted object as the plain Python value; raises ValueError or
            OverflowError for one that is out of range.
        to_item: Returns the item of a value.
        from_item: Returns the value of an item; raises ValueError or OverflowError if it has none.
        to_text: Writes a value as text (rule TBL-8).
        from_text: Reads what `to_text` wrote; raises ValueError or OverflowError for other text.
        text_form: What that text is called. None if JSON holds the value itself.
        example: What a form on a page asks for.
        is_text: Whether values are strings, whose text may be in base64.
        has_prefixes: Whether a value has a beginning that can be asked for.
    """

    smallest: Any
    largest: Any = None
    following: Callable[[Any], Any]
    plain: Callable[[Any], Any]
    to_item: Callable[[Any], int | bytes]
    from_item: Callable[[Any], Any]
    to_text: Callable[[Any], str]
    from_text: Callable[[str], Any]
    text_form: str | None
    example: str
    is_text: bool = False
    has_prefixes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedType:
    """What a type is called in the table formats of others.

    Attributes:
        delta: Its name in Delta; None if it has none there.
        iceberg: Its name in Iceberg; None if it has none there.
        bound: How the least and greatest key of a file are told there: as a number, a text, a day
            or a time. None if they are left out: readers order the values in another way.
    """

    delta: str | None
    iceberg: str | None
    bound: Literal["number", "text", "day", "time"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeTraits:
    """One row of the table of types.

    Attributes:
        wanted: What a value must be, for messages.
        accepts: Whether objects of a class can be values; their values are not checked.
        spark: The name of Spark's class of the type. Decimals have parameters, and no name here.
        spark_setting: The setting that a session needs to be "true" for the type; None for none.
        spark_takes_values: Whether Spark makes a literal of a Python value; else of its text.
        key: What keys need; None if the type has no order that all engines agree on.
        is_number: Whether values can be added.
        is_ordered: Whether values have a least and a greatest.
        counts: Whether a field can hold a number of rows.
        ticks_at: Returns what a time has as number at some milliseconds since 1970, rounded down;
            None if rows cannot age by such a field.
        is_instant: Whether values are times in UTC, which Spark gives in the local zone.
        has_nan: Whether a value may be NaN.
        published: What it is called in the table formats of others.
        wider: The type that a field of it may become, in which each value stays what it is; None if
            there is none. A decimal may become one of more digits.
    """

    wanted: str
    accepts: Callable[[type], bool]
    published: PublishedType
    spark: str | None
    spark_setting: str | None = None
    spark_takes_values: bool = False
    key: KeyTraits | None = None
    is_number: bool = False
    is_ordered: bool = False
    counts: bool = False
    ticks_at: Callable[[int], int] | None = None
    is_instant: bool = False
    has_nan: bool = False
    wider: Primitive | None = None


# Which classes of objects fit.


def is_null_class(cls: type) -> bool:
    """Return whether objects of this class are null: None, and pandas' NA and NaT."""
    return cls is type(None) or (
        cls.__name__ in ("NAType", "NaTType") and cls.__module__.partition(".")[0] == "pandas"
    )


def is_integer(cls: type) -> bool:
    """Return whether a class is an integer type; booleans and NumPy's durations are not."""
    return cls is not bool and issubclass(cls, Integral) and hasattr(cls, "__index__")


def _is_real(cls: type) -> bool:
    return is_integer(cls) or _is_float(cls)


def _is_float(cls: type) -> bool:
    """Return whether a class is float, or a float of NumPy of at most 64 bits."""
    if issubclass(cls, float):
        return True
    return issubclass(cls, Real) and cls.__module__ == "numpy" and cls.__name__ in _NUMPY_FLOATS


_NUMPY_FLOATS = ("float16", "float32")  # numpy.float64 is a float


def _is_text(cls: type) -> bool:
    return issubclass(cls, str | UUID)


def _is_bytes(cls: type) -> bool:
    return issubclass(cls, bytes | bytearray | memoryview)


def _is_boolean(cls: type) -> bool:
    return issubclass(cls, bool) or (
        cls.__module__ == "numpy" and cls.__name__ in ("bool", "bool_")
    )


def _is_date(cls: type) -> bool:
    return issubclass(cls, date) and not issubclass(cls, datetime)


def _is_timestamp(cls: type) -> bool:
    return issubclass(cls, datetime) and not is_null_class(cls)


def _is_time_of_day(cls: type) -> bool:
    return issubclass(cls, time)


def _is_duration(cls: type) -> bool:
    return issubclass(cls, timedelta) and not is_null_class(cls)


def _is_decimal(cls: type) -> bool:
    return issubclass(cls, Decimal) or is_integer(cls)


# Plain values of accepted objects.


def _plain_integer(limit: int, value: Any) -> int:
    number = index(value)
    if not -limit <= number < limit:
        raise ValueError("it is out of range")
    return number


def plain_text(value: str | UUID) -> str:
    """Return a string as `str` itself, also for a member of an enum; a UUID as its text.

    Raises:
        ValueError: UTF-8 cannot encode it: it has half of a surrogate pair.
    """
    if isinstance(value, UUID):
        return str(value)
    text = str.__str__(value)
    if not text.isascii():
        text.encode()
    return text


def plain_instant(value: datetime) -> datetime:
    """Return a timestamp in UTC, as `datetime` itself.

    Raises:
        ValueError: the value has no time zone, has nanoseconds, or in UTC is outside the years
            1 to 9999.
    """
    if value.tzinfo is None or value.utcoffset() is None:
        raise ValueError("it has no time zone")
    plain = plain_clock(value.replace(tzinfo=None)).replace(tzinfo=value.tzinfo, fold=value.fold)
    try:
        return plain.astimezone(UTC)
    except OverflowError:
        raise ValueError("in UTC it is outside the years 1 to 9999") from None


def plain_clock(value: datetime) -> datetime:
    """Return a timestamp without a time zone, as `datetime` itself.

    Raises:
        ValueError: the value has a time zone, has nanoseconds, or a year outside Python's range.
    """
    if value.tzinfo is not None:
        raise ValueError("it has a time zone")
    if type(value) is datetime:
        return value
    if getattr(value, "nanosecond", 0):
        raise ValueError("it has nanoseconds, and timestamps count microseconds")
    day = (value.year, value.month, value.day)
    time = (value.hour, value.minute, value.second, value.microsecond)
    return datetime(*day, *time, fold=value.fold)  # noqa: DTZ001 - a clock time has no zone


def duration_text(value: timedelta) -> str:
    """Return a length of time in ISO 8601, such as P1DT2H3.5S.

    >>> duration_text(timedelta(days=1, hours=2, seconds=3.5)), duration_text(timedelta(hours=-36))
    ('P1DT2H3.5S', '-P1DT12H')
    """
    sign, value = ("-", -value) if value < timedelta(0) else ("", value)
    minutes, seconds = divmod(value.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    fraction = f".{value.microseconds:06}".rstrip("0").rstrip(".")
    parts = [(f"{hours}", "H"), (f"{minutes}", "M"), (f"{seconds}{fraction}", "S")]
    days = f"{value.days}D" if value.days else ""
    times = "".join(f"{number}{unit}" for number, unit in parts if number != "0")
    return f"{sign}P{days}{'T' if times else ''}{times}" if days or times else "PT0S"


# Steps from value to value, items and text.


_MICROSECOND: Final = timedelta(microseconds=1)
_MS_PER_DAY: Final = 86_400_000
_US_PER_MS: Final = 1000
_EPOCH_DAY: Final = date(1970, 1, 1)
_EPOCH_UTC: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_CLOCK: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - a wall clock has no zone


def _same(value: Any) -> Any:
    return value


def _plus(step: Any, value: Any) -> Any:
    return value + step


def _days(value: date) -> int:
    return (value - _EPOCH_DAY).days


def _microseconds(value: datetime) -> int:
    """Return a timestamp as a number, whether it is an instant or a clock time."""
    return (value - (_EPOCH_CLOCK if value.tzinfo is None else _EPOCH_UTC)) // _MICROSECOND


def _day(item: int) -> date:
    return _EPOCH_DAY + timedelta(days=item)


def _time(epoch: datetime, item: int) -> datetime:
    return epoch + timedelta(microseconds=item)


def _iso(value: date) -> str:
    return value.isoformat()


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


_from_base64 = partial(base64.b64decode, validate=True)
_ISO = "ISO 8601"


def _integer_key(bits: int) -> KeyTraits:
    limit = 2 ** (bits - 1)
    return KeyTraits(
        smallest=-limit,
        largest=limit - 1,
        following=partial(_plus, 1),
        plain=partial(_plain_integer, limit),
        to_item=_same,
        from_item=_same,
        to_text=str,
        from_text=int,
        text_form=None,
        example="a whole number",
    )


def _timestamp_key(
    epoch: datetime, plain: Callable[[datetime], datetime], example: str
) -> KeyTraits:
    return KeyTraits(
        smallest=datetime.min.replace(tzinfo=epoch.tzinfo),
        largest=datetime.max.replace(tzinfo=epoch.tzinfo),
        following=partial(_plus, _MICROSECOND),
        plain=plain,
        to_item=_microseconds,
        from_item=partial(_time, epoch),
        to_text=_iso,
        from_text=datetime.fromisoformat,
        text_form=_ISO,
        example=example,
    )


TYPE_TRAITS: Final[Mapping[Primitive, TypeTraits]] = {
    Primitive.INT: TypeTraits(
        wanted="an integer of 32 bits",
        accepts=is_integer,
        published=PublishedType(delta="integer", iceberg="int", bound="number"),
        spark="IntegerType",
        spark_takes_values=True,
        key=_integer_key(32),
        is_number=True,
        is_ordered=True,
        counts=True,
        wider=Primitive.LONG,
    ),
    Primitive.LONG: TypeTraits(
        wanted="an integer of 64 bits",
        accepts=is_integer,
        published=PublishedType(delta="long", iceberg="long", bound="number"),
        spark="LongType",
        spark_takes_values=True,
        key=_integer_key(64),
        is_number=True,
        is_ordered=True,
        counts=True,
        ticks_at=_same,  # it holds milliseconds
    ),
    Primitive.STRING: TypeTraits(
        wanted="a string that UTF-8 can hold",
        accepts=_is_text,
        published=PublishedType(delta="string", iceberg="string", bound="text"),
        spark="StringType",
        spark_takes_values=True,
        key=KeyTraits(
            smallest="",
            following=methodcaller("__add__", "\0"),
            plain=plain_text,
            to_item=str.encode,
            from_item=bytes.decode,
            to_text=_same,
            from_text=_same,
            text_form=None,
            example="text",
            is_text=True,
            has_prefixes=True,
        ),
        is_ordered=True,
    ),
    Primitive.BYTES: TypeTraits(
        wanted="bytes",
        accepts=_is_bytes,
        published=PublishedType(delta="binary", iceberg="binary"),
        spark="BinaryType",
        spark_takes_values=True,
        key=KeyTraits(
            smallest=b"",
            following=methodcaller("__add__", b"\0"),
            plain=bytes,
            to_item=_same,
            from_item=_same,
            to_text=_base64,
            from_text=_from_base64,
            text_form="base64",
            example="base64",
            has_prefixes=True,
        ),
        is_ordered=True,
    ),
    Primitive.DATE: TypeTraits(
        wanted="a datetime.date",
        accepts=_is_date,
        published=PublishedType(delta="date", iceberg="date", bound="day"),
        spark="DateType",
        key=KeyTraits(
            smallest=date.min,
            largest=date.max,
            following=partial(_plus, timedelta(days=1)),
            plain=_same,
            to_item=_days,
            from_item=_day,
            to_text=_iso,
            from_text=date.fromisoformat,
            text_form=_ISO,
            example="such as 2026-01-31",
        ),
        is_ordered=True,
        ticks_at=lambda ms: ms // _MS_PER_DAY,
    ),
    Primitive.TIMESTAMP: TypeTraits(
        wanted="a datetime with a time zone",
        accepts=_is_timestamp,
        published=PublishedType(delta="timestamp", iceberg="timestamptz", bound="time"),
        spark="TimestampType",
        key=_timestamp_key(_EPOCH_UTC, plain_instant, "such as 2026-01-31T12:00:00+00:00"),
        is_ordered=True,
        ticks_at=lambda ms: ms * _US_PER_MS,
        is_instant=True,
    ),
    Primitive.TIMESTAMP_NTZ: TypeTraits(
        wanted="a datetime without a time zone",
        accepts=_is_timestamp,
        published=PublishedType(delta="timestamp_ntz", iceberg="timestamp", bound="time"),
        spark="TimestampNTZType",
        key=_timestamp_key(_EPOCH_CLOCK, plain_clock, "such as 2026-01-31T12:00:00"),
        is_ordered=True,
        ticks_at=lambda ms: ms * _US_PER_MS,
    ),
    Primitive.FLOAT: TypeTraits(
        wanted="a number that a float of 32 bits can hold",
        accepts=_is_real,
        published=PublishedType(delta="float", iceberg="float"),
        spark="FloatType",
        is_number=True,
        is_ordered=True,
        has_nan=True,
        wider=Primitive.DOUBLE,
    ),
    Primitive.DOUBLE: TypeTraits(
        wanted="a number that a float of 64 bits can hold",
        accepts=_is_real,
        published=PublishedType(delta="double", iceberg="double"),
        spark="DoubleType",
        is_number=True,
        is_ordered=True,
        has_nan=True,
    ),
    Primitive.BOOLEAN: TypeTraits(
        wanted="True or False",
        accepts=_is_boolean,
        published=PublishedType(delta="boolean", iceberg="boolean"),
        spark="BooleanType",
    ),
    Primitive.TIME: TypeTraits(
        wanted="a datetime.time without a time zone",
        accepts=_is_time_of_day,
        published=PublishedType(delta=None, iceberg="time"),
        spark="TimeType",
        spark_setting="spark.sql.timeType.enabled",
        is_ordered=True,
    ),
    Primitive.DURATION: TypeTraits(
        wanted="a datetime.timedelta",
        accepts=_is_duration,
        published=PublishedType(delta=None, iceberg=None),
        spark="DayTimeIntervalType",
        is_ordered=True,
    ),
}
"""The row of each type without parameters."""

KEY_TYPES: Final = tuple(kind for kind, row in TYPE_TRAITS.items() if row.key is not None)


@lru_cache
def _decimal_traits(precision: int, scale: int) -> TypeTraits:
    return TypeTraits(
        wanted=f"a Decimal or int of at most {precision} digits, {scale} of them after the point",
        accepts=_is_decimal,
        published=PublishedType(
            delta=f"decimal({precision},{scale})", iceberg=f"decimal({precision}, {scale})"
        ),
        spark=None,
        is_number=True,
        is_ordered=True,
    )


def traits_of(kind: object) -> TypeTraits | None:
    """Return the row of a type; None for lists, maps and what is no type."""
    if isinstance(kind, DecimalType):
        return _decimal_traits(kind.precision, kind.scale)
    return TYPE_TRAITS.get(kind) if isinstance(kind, Primitive) else None


def key_traits(kind: Primitive) -> KeyTraits:
    """Return what keys of a type need; the type must be one of `KEY_TYPES`."""
    found = TYPE_TRAITS[kind].key
    assert found is not None
    return found
