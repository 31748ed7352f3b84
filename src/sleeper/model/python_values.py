"""Which Python classes hold values of which field type: one rule for keys and for rows.

Nothing is converted between kinds: a float is no integer, bytes are no text, a `datetime` is
no `date`, and a clock time without a zone is no instant.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from numbers import Integral, Real

from sleeper.model.schema import DecimalType, Primitive

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
    """Return whether objects of this class mean null: None, and pandas' NA and NaT."""
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
    """Return whether objects of a class are integers; booleans and NumPy's durations are none."""
    return cls is not bool and issubclass(cls, Integral) and hasattr(cls, "__index__")


def _is_float(cls: type) -> bool:
    """True for float, and for NumPy's floats but those that are longer than 64 bits."""
    if issubclass(cls, float):
        return True
    return issubclass(cls, Real) and cls.__module__ == "numpy" and cls.__name__ in _NUMPY_FLOATS


_NUMPY_FLOATS = ("float16", "float32")  # numpy.float64 is a float


def _is_numpy_bool(cls: type) -> bool:
    return cls.__module__ == "numpy" and cls.__name__ in ("bool", "bool_")


def plain_text(value: str) -> str:
    """Return the text itself, also of an enum's member.

    Raises:
        ValueError: UTF-8 cannot hold it: it has half of a surrogate pair.
    """
    text = str.__str__(value)
    if not text.isascii():
        text.encode()
    return text


def plain_instant(value: datetime) -> datetime:
    """Return an instant in UTC, as `datetime` itself.

    Raises:
        ValueError: the value has no time zone, has nanoseconds, or UTC cannot hold it in the
            years 1 to 9999.
    """
    if value.tzinfo is None or value.utcoffset() is None:
        raise ValueError("it has no time zone")
    plain = plain_clock(value.replace(tzinfo=None)).replace(tzinfo=value.tzinfo, fold=value.fold)
    try:
        return plain.astimezone(UTC)
    except OverflowError:
        raise ValueError("in UTC it lies outside the years 1 to 9999") from None


def plain_clock(value: datetime) -> datetime:
    """Return a clock time without a time zone, as `datetime` itself.

    Raises:
        ValueError: the value has a time zone, has nanoseconds, or a year that Python has not.
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
