"""Values of fields in rows that were written before the field was added, as text and as Arrow's."""

from __future__ import annotations

import base64
from datetime import timedelta
from typing import Any, Final

import pyarrow as pa

from sleeper.columns.python_values import MISFITS, python_array
from sleeper.columns.type_traits import arrow_traits
from sleeper.errors import SchemaInvalid
from sleeper.model.column_types import duration_text

LENGTH_MAX: Final = 1_000
"""Characters of a default as text: it is part of each schema of the table, in one item of DynamoDB
with all others."""


def default_text(value: Any, kind: pa.DataType, name: str) -> str:
    """Return a default as text, from which `default_value` makes the same value.

    Args:
        value: A value of Python, not None.
        kind: The type of the field.
        name: The field's, for the error.

    Raises:
        SchemaInvalid: it is no value of this type, or the type can have no default.
    """
    if pa.types.is_nested(kind):
        raise SchemaInvalid(
            f"field {name!r} is of {kind}, which can have no default: make it nullable"
        )
    try:
        array = python_array([value], kind)
        if array.null_count:
            raise SchemaInvalid(f"the default of field {name!r} is null: make it nullable instead")
        if pa.types.is_binary(kind):
            text = base64.b64encode(array[0].as_py()).decode()
        elif pa.types.is_floating(kind):
            text = repr(array[0].as_py())
        elif isinstance(array[0].as_py(), timedelta):
            text = duration_text(array[0].as_py())
        else:
            text = str(array.cast(pa.string())[0])
        if len(text) > LENGTH_MAX:
            raise ValueError(f"it has {len(text):,} characters, and may have {LENGTH_MAX:,}")
        again = default_value(text, kind)
        if again != array[0] and not _are_nan(again, array[0]):
            raise ValueError(f"it would become {again}")
    except MISFITS as error:
        reason = str(error).splitlines()[0][:300]
        raise SchemaInvalid(
            f"the default of field {name!r} must be a value of {kind}, not {_shown(value)}: "
            f"{reason}"
        ) from None
    return text


def default_value(text: str | None, kind: pa.DataType, name: str | None = None) -> pa.Scalar:
    """Return the default that a schema says, of the type of its field; a null for None.

    Args:
        text: The default, as `default_text` writes it.
        kind: The type of the field.
        name: The field's, for the error.

    Raises:
        SchemaInvalid: the text is no value of this type.
    """
    if text is None:
        return pa.scalar(None, kind)
    try:
        if pa.types.is_binary(kind):
            return pa.scalar(base64.b64decode(text, validate=True), kind)
        texts, row = pa.array([text], pa.string()), arrow_traits(kind)
        if row is not None and row.from_text is not None:
            return row.from_text(texts)[0]
        return texts.cast(kind)[0]
    except MISFITS as error:
        raise SchemaInvalid(
            f"the default {text!r:.200} of {'a field' if name is None else f'field {name!r}'} is "
            f"no value of {kind}: {error!s:.200}"
        ) from None


def _shown(value: object) -> str:
    try:
        return f"{value!r:.200}"
    except ValueError:  # Python writes no numbers of more than 4,300 digits
        return f"a {type(value).__name__}"


def _are_nan(one: pa.Scalar, other: pa.Scalar) -> bool:
    return bool(pa.types.is_floating(one.type)) and one.as_py() != one.as_py() != other.as_py()
