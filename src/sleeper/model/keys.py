"""Values of key fields: what is allowed, how they are ordered, how they are written down.

Order is the same everywhere: integers, dates and timestamps by value, strings by code point
(which is the order of their UTF-8 bytes), bytes unsigned, a shorter prefix first. Python's
own order of these types is exactly that, so keys are plain values and tuples of them.
"""

from __future__ import annotations

import base64
import binascii
from datetime import UTC, date, datetime, timedelta
from operator import index
from typing import Any

from sleeper.errors import QueryInvalid
from sleeper.model.python_values import WANTED, holds, plain_clock, plain_instant, plain_text
from sleeper.model.schema import Field, Primitive

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


def key_type(field: Field) -> Primitive:
    """Return a key field's type, which is always a primitive one."""
    assert isinstance(field.type, Primitive)
    return field.type


def smallest_value(kind: Primitive) -> Any:
    """Return the least value of a key type (spec SCH-7); dates start with the year 1."""
    return _SMALLEST[kind]


def next_value(kind: Primitive, value: Any) -> Any:
    """Return the least value above `value`, or None when there is none (spec PRT-2).

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


def checked_value(field: Field, value: object) -> Any:
    """Return `value` as the plain Python value of a key field.

    Integers of other libraries become `int`; an aware timestamp is brought to UTC.

    Raises:
        QueryInvalid: the value is of another type, or out of the type's limits.
    """
    kind = key_type(field)
    try:
        if holds(type(value), kind):
            return _plain(kind, value)
        reason = ""
    except (ValueError, OverflowError) as error:
        reason = f" ({error})"
    raise QueryInvalid(
        f"{value!r} is no value for key field {field.name!r}: it wants {WANTED[kind]}{reason}"
    )


def _plain(kind: Primitive, value: Any) -> Any:
    match kind:
        case Primitive.INT | Primitive.LONG:
            limit = _INTEGER_LIMITS[kind]
            number = index(value)
            if not -limit <= number < limit:
                raise ValueError("it is beyond that")
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


def value_from_text(field: Field, text: str, *, base64_encoded: bool = False) -> Any:
    """Read a key value from a line of text, as split points files and the command line have it.

    Integers are decimal, bytes are always base64, strings are raw unless `base64_encoded`,
    dates and timestamps are ISO 8601 (spec TBL-8).

    Raises:
        QueryInvalid: the text is no value of the field's type.
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
    except (ValueError, binascii.Error) as error:
        raise QueryInvalid(
            f"{text!r} is no value for key field {field.name!r} of {kind.value}: {error}"
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
    """Read what `value_to_json` wrote.

    Raises:
        QueryInvalid: it is no value of the field's type.
    """
    kind = key_type(field)
    if value is None:
        return None
    if kind in (Primitive.INT, Primitive.LONG, Primitive.STRING):
        return checked_value(field, value)
    return value_from_text(field, value)
