"""Values of fields: which Python objects fit; how key values are ordered and written as text.

No kind of value is converted to another: a float does not fit an integer field, bytes do not fit a
string, a `datetime` does not fit a date, and a time without a zone does not fit a timestamp with
one. The same rule holds for rows and for keys.

Order is the same everywhere: integers, dates and timestamps by value, strings by code point
(which is the order of their UTF-8 bytes), bytes unsigned, a shorter prefix first. Python's
own order of these types is exactly that, so keys are plain values and tuples of them.
"""

from __future__ import annotations

import base64
import binascii
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from numbers import Integral, Real
from operator import index
from typing import Any

from sleeper.errors import QueryInvalid
from sleeper.model.schema import DecimalType, Field, Primitive

KeyValue = int | str | bytes | date | datetime
Key = tuple[Any, ...]

_INTEGER_LIMITS = {Primitive.INT: 2**31, Primitive.LONG: 2**63}
_SMALLEST: dict[Primitive, KeyValue] = {
    Primitive.INT: -(2**31),
    Primitive.LONG: -(2**63),
    Primitive.STRING: "",
    Primitive.BYTES: b"",
    Primitive.DATE: date.min,
    Primitive.TIMESTAMP: datetime.min.replace(tzinfo=UTC),
    Primitive.TIMESTAMP_NTZ: datetime.min,  # noqa: DTZ901 - a wall clock has no zone
}
_LARGEST: dict[Primitive, KeyValue] = {
    Primitive.INT: 2**31 - 1,
    Primitive.LONG: 2**63 - 1,
    Primitive.DATE: date.max,
    Primitive.TIMESTAMP: datetime.max.replace(tzinfo=UTC),
    Primitive.TIMESTAMP_NTZ: datetime.max,  # noqa: DTZ901
}

_SHOWN_MAX = 200
_LAST_CHARACTER = "\U0010ffff"
_FIRST_SURROGATE, _AFTER_SURROGATES = 0xD800, 0xE000  # UTF-8 has no code points between them


def key_type(field: Field) -> Primitive:
    """Return a key field's type, which is always a primitive one."""
    assert isinstance(field.type, Primitive)
    return field.type


def smallest_value(kind: Primitive) -> Any:
    """Return the least value of a key type (rule SCH-7); dates start with the year 1."""
    return _SMALLEST[kind]


def next_value(kind: Primitive, value: Any) -> Any:
    """Return the least value above `value`, or None when there is none (rule PRT-2).

    A string or bytes is followed by itself and one zero byte.
    """
    if value == _LARGEST.get(kind):
        return None
    match kind:
        case Primitive.INT | Primitive.LONG:
            return value + 1
        case Primitive.STRING:
            return value + "\0"
        case Primitive.BYTES:
            return value + b"\0"
        case Primitive.DATE:
            return value + timedelta(days=1)
        case _:
            return value + timedelta(microseconds=1)


def after_prefix(prefix: str | bytes) -> Any:
    r"""Return the least value above all that begin with `prefix`, or None when there is none.

    >>> after_prefix("usr/"), after_prefix(b"a\xff"), after_prefix(b"\xff"), after_prefix("")
    ('usr0', b'b', None, None)
    """
    if isinstance(prefix, bytes):
        rest = prefix.rstrip(b"\xff")
        return rest[:-1] + bytes([rest[-1] + 1]) if rest else None
    text = prefix.rstrip(_LAST_CHARACTER)
    if not text:
        return None
    following = ord(text[-1]) + 1
    return text[:-1] + chr(_AFTER_SURROGATES if following == _FIRST_SURROGATE else following)


def checked_value(field: Field, value: object) -> Any:
    """Return `value` as the plain Python value of a key field.

    Integers of other libraries become `int`; an aware timestamp is converted to UTC.

    Raises:
        QueryInvalid: the value has the wrong type, or is out of the type's range.
    """
    kind = key_type(field)
    try:
        if holds(type(value), kind):
            return _plain(kind, value)
        reason = ""
    except (ValueError, OverflowError) as error:
        reason = f" ({error})"
    raise QueryInvalid(
        f"{shown_value(value)} is not a value for key field {field.name!r}: it must be "
        f"{WANTED[kind]}{reason}"
    )


def shown_value(value: object) -> str:
    """Return a value for a message: the beginning of its repr; its class where it has none."""
    try:
        shown = repr(value)
    except (ValueError, RecursionError):  # an integer of more digits than Python writes
        return f"a value of {type(value).__name__}"
    return shown if len(shown) <= _SHOWN_MAX else f"{shown[:_SHOWN_MAX]}..."


def _plain(kind: Primitive, value: Any) -> Any:
    match kind:
        case Primitive.INT | Primitive.LONG:
            limit = _INTEGER_LIMITS[kind]
            number = index(value)
            if not -limit <= number < limit:
                raise ValueError("it is out of range")
            return number
        case Primitive.STRING:
            return plain_text(value)
        case Primitive.BYTES:
            return bytes(value)
        case Primitive.TIMESTAMP:
            return plain_instant(value)
        case Primitive.TIMESTAMP_NTZ:
            return plain_clock(value)
    return value


WANTED: dict[Primitive, str] = {
    Primitive.INT: "an integer of 32 bits",
    Primitive.LONG: "an integer of 64 bits",
    Primitive.STRING: "a string that UTF-8 can hold",
    Primitive.BYTES: "bytes",
    Primitive.DATE: "a datetime.date",
    Primitive.TIMESTAMP: "a datetime with a time zone",
    Primitive.TIMESTAMP_NTZ: "a datetime without a time zone",
    Primitive.FLOAT: "a number that a float of 32 bits can hold",
    Primitive.DOUBLE: "a number that a float of 64 bits can hold",
    Primitive.BOOLEAN: "True or False",
}
"""What a value must be, for messages."""


def wanted_of(kind: Primitive | DecimalType) -> str:
    """Return what a value of a type must be, for messages."""
    if isinstance(kind, DecimalType):
        return (
            f"a Decimal or int of at most {kind.precision} digits, {kind.scale} of them after "
            "the point"
        )
    return WANTED[kind]


def is_null_class(cls: type) -> bool:
    """Return whether objects of this class are null: None, and pandas' NA and NaT."""
    return cls is type(None) or (
        cls.__name__ in ("NAType", "NaTType") and cls.__module__.partition(".")[0] == "pandas"
    )


def holds(cls: type, kind: Primitive | DecimalType) -> bool:
    """Return whether objects of a class can be values of a type; their values are not checked."""
    match kind:
        case Primitive.INT | Primitive.LONG:
            return is_integer(cls)
        case Primitive.FLOAT | Primitive.DOUBLE:
            return is_integer(cls) or _is_float(cls)
        case Primitive.STRING:
            return issubclass(cls, str)
        case Primitive.BYTES:
            return issubclass(cls, bytes | bytearray | memoryview)
        case Primitive.BOOLEAN:
            return issubclass(cls, bool) or _is_numpy_bool(cls)
        case Primitive.DATE:
            return issubclass(cls, date) and not issubclass(cls, datetime)
        case Primitive.TIMESTAMP | Primitive.TIMESTAMP_NTZ:
            return issubclass(cls, datetime) and not is_null_class(cls)
        case DecimalType():
            return issubclass(cls, Decimal) or is_integer(cls)


def is_integer(cls: type) -> bool:
    """Return whether a class is an integer type; booleans and NumPy's durations are not."""
    return cls is not bool and issubclass(cls, Integral) and hasattr(cls, "__index__")


def _is_float(cls: type) -> bool:
    """Return whether a class is float, or a float of NumPy of at most 64 bits."""
    if issubclass(cls, float):
        return True
    return issubclass(cls, Real) and cls.__module__ == "numpy" and cls.__name__ in _NUMPY_FLOATS


_NUMPY_FLOATS = ("float16", "float32")  # numpy.float64 is a float


def _is_numpy_bool(cls: type) -> bool:
    return cls.__module__ == "numpy" and cls.__name__ in ("bool", "bool_")


def plain_text(value: str) -> str:
    """Return a string as `str` itself, also for a member of an enum.

    Raises:
        ValueError: UTF-8 cannot encode it: it has half of a surrogate pair.
    """
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


def value_from_text(field: Field, text: str, *, base64_encoded: bool = False) -> Any:
    """Read a key value from text, in the form of split points files and the command line.

    Integers are decimal, bytes are always base64, strings are raw unless `base64_encoded`,
    dates and timestamps are ISO 8601 (rule TBL-8).

    Raises:
        QueryInvalid: the text is not a value of the field's type.
    """
    kind = key_type(field)
    try:
        if kind is Primitive.BYTES:
            value: Any = base64.b64decode(text, validate=True)
        elif kind is Primitive.STRING:
            value = base64.b64decode(text, validate=True).decode() if base64_encoded else text
        elif kind in _INTEGER_LIMITS:
            value = int(text)
        elif kind is Primitive.DATE:
            value = date.fromisoformat(text)
        else:
            value = datetime.fromisoformat(text)
    except (ValueError, OverflowError, binascii.Error) as error:
        raise QueryInvalid(
            f"{shown_value(text)} is not a value for key field {field.name!r} of {kind.value}: "
            f"{error!s:.{_SHOWN_MAX}}"
        ) from None
    return checked_value(field, value)


def value_to_text(kind: Primitive, value: Any, *, base64_encoded: bool = False) -> str:
    """Write a key value as one line of text; `value_from_text` reads it back."""
    match kind:
        case Primitive.BYTES:
            return base64.b64encode(value).decode()
        case Primitive.STRING:
            return base64.b64encode(value.encode()).decode() if base64_encoded else value
        case Primitive.INT | Primitive.LONG:
            return str(value)
        case _:
            return str(value.isoformat())


def value_to_json(kind: Primitive, value: Any) -> Any:
    """Write a key value, or None, for JSON: numbers and strings as they are, the rest as text."""
    if value is None or kind in (Primitive.INT, Primitive.LONG, Primitive.STRING):
        return value
    return value_to_text(kind, value)


def value_from_json(field: Field, value: Any) -> Any:
    """Parse a value that `value_to_json` wrote.

    Raises:
        QueryInvalid: it is not a value of the field's type.
    """
    kind = key_type(field)
    if value is None:
        return None
    if kind in (Primitive.INT, Primitive.LONG, Primitive.STRING):
        return checked_value(field, value)
    if type(value) is not str:
        raise QueryInvalid(
            f"{shown_value(value)} is not a value for key field {field.name!r} of {kind.value}: in "
            "JSON it is a text"
        )
    return value_from_text(field, value)
