"""Values of fields: which Python objects fit; how key values are ordered and written as text.

No kind of value is converted to another: a float does not fit an integer field, bytes do not fit a
string, a `datetime` does not fit a date, and a time without a zone does not fit a timestamp with
one. The same rule holds for rows and for keys.

What holds for one type, such as its order, is in its row of `column_types`.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from sleeper.errors import QueryInvalid
from sleeper.model.column_types import TYPE_TRAITS, Primitive, key_traits
from sleeper.model.schema import Field

Key = tuple[Any, ...]

_SHOWN_MAX = 200
_LAST_CHARACTER = "\U0010ffff"
_FIRST_SURROGATE, _AFTER_SURROGATES = 0xD800, 0xE000  # UTF-8 has no code points between them


def key_type(field: Field) -> Primitive:
    """Return a key field's type, which is always a primitive one."""
    assert isinstance(field.type, Primitive)
    return field.type


def smallest_value(kind: Primitive) -> Any:
    """Return the least value of a key type (rule SCH-7); dates start with the year 1."""
    return key_traits(kind).smallest


def next_value(kind: Primitive, value: Any) -> Any:
    """Return the least value above `value`, or None when there is none (rule PRT-2).

    A string or bytes is followed by itself and one zero byte.
    """
    traits = key_traits(kind)
    return None if value == traits.largest else traits.following(value)


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
    traits = TYPE_TRAITS[key_type(field)]
    assert traits.key is not None
    try:
        if traits.accepts(type(value)):
            return traits.key.plain(value)
        reason = ""
    except (ValueError, OverflowError) as error:
        reason = f" ({error})"
    raise QueryInvalid(
        f"{shown_value(value)} is not a value for key field {field.name!r}: it must be "
        f"{traits.wanted}{reason or value_meant(field, value)}"
    )


def value_meant(field: Field, value: object) -> str:
    """Return what to give in place of a value of another type, if it is plain what was meant.

    >>> from sleeper.model.schema import Field, Primitive
    >>> value_meant(Field("id", Primitive.LONG), "7"), value_meant(Field("id", Primitive.LONG), "x")
    ('; give 7', '')
    """
    traits = TYPE_TRAITS[key_type(field)]
    try:
        if isinstance(value, str) and traits.key is not None and len(value) < _SHOWN_MAX:
            return f"; give {traits.key.from_text(value)!r}"
        if isinstance(value, float) and value.is_integer() and traits.accepts(int):
            return f"; give {int(value)}"
    except (ValueError, OverflowError):
        pass
    return ""


def shown_value(value: object) -> str:
    """Return a value for a message: the beginning of its repr; its class where it has none."""
    try:
        shown = repr(value)
    except (ValueError, RecursionError):  # an integer of more digits than Python writes
        return f"a value of {type(value).__name__}"
    return shown if len(shown) <= _SHOWN_MAX else f"{shown[:_SHOWN_MAX]}..."


def value_from_text(field: Field, text: str, *, base64_encoded: bool = False) -> Any:
    """Read a key value from text, in the form of split points files and the command line.

    Integers are decimal, bytes are always base64, strings are raw unless `base64_encoded`,
    dates and timestamps are ISO 8601 (rule TBL-8).

    Raises:
        QueryInvalid: the text is not a value of the field's type.
    """
    kind = key_type(field)
    traits = key_traits(kind)
    try:
        if base64_encoded and traits.is_text:
            text = base64.b64decode(text, validate=True).decode()
        value = traits.from_text(text)
    except (ValueError, OverflowError) as error:  # also binascii.Error
        raise QueryInvalid(
            f"{shown_value(text)} is not a value for key field {field.name!r} of {kind.value}: "
            f"{_why_not(error, kind)}"
        ) from None
    return checked_value(field, value)


def keys_of_lines(fields: Sequence[Field], lines: Sequence[str], of: str = "") -> list[Key]:
    """Read one row key from each line; values of a composite key are separated by tabs.

    Args:
        fields: The row key fields.
        lines: The lines, without their ends.
        of: What they are lines of, for errors.

    Raises:
        QueryInvalid: a line has too few or too many values, or one is not of its field's type.
    """
    keys = []
    for number, line in enumerate(lines, 1):
        values = line.split("\t") if len(fields) > 1 else [line]
        if len(values) != len(fields):
            raise QueryInvalid(
                f"line {number}{of} has {len(values)} values; a key has {len(fields)}, separated "
                f"by tabs: {', '.join(field.name for field in fields)}"
            )
        try:
            keys.append(tuple(map(value_from_text, fields, values)))
        except QueryInvalid as error:
            raise QueryInvalid(f"line {number}{of}: {error}") from error
    return keys


def _why_not(error: Exception, kind: Primitive) -> str:
    """Return why a text is no value, without what Python says of its own functions."""
    if str(error).startswith("invalid literal for int()"):
        return f"it must be {TYPE_TRAITS[kind].wanted}"
    return f"{error!s:.{_SHOWN_MAX}}"


def value_to_text(kind: Primitive, value: Any, *, base64_encoded: bool = False) -> str:
    """Write a key value as one line of text; `value_from_text` reads it back."""
    traits = key_traits(kind)
    text = traits.to_text(value)
    return base64.b64encode(text.encode()).decode() if base64_encoded and traits.is_text else text


def value_to_json(kind: Primitive, value: Any) -> Any:
    """Write a key value, or None, for JSON: numbers and strings as they are, the rest as text."""
    traits = key_traits(kind)
    return value if value is None or traits.text_form is None else traits.to_text(value)


def value_from_json(field: Field, value: Any) -> Any:
    """Parse a value that `value_to_json` wrote.

    Raises:
        QueryInvalid: it is not a value of the field's type.
    """
    kind = key_type(field)
    if value is None:
        return None
    if key_traits(kind).text_form is None:
        return checked_value(field, value)
    if type(value) is not str:
        raise QueryInvalid(
            f"{shown_value(value)} is not a value for key field {field.name!r} of {kind.value}: in "
            "JSON it is a text"
        )
    return value_from_text(field, value)
