"""Values of fields in rows that were written before the field was added, as text and as Arrow's."""

from __future__ import annotations

import base64
from datetime import timedelta
from typing import Any

import pyarrow as pa

from sleeper.columns.python_values import MISFITS, python_array
from sleeper.columns.type_traits import arrow_traits
from sleeper.errors import SchemaInvalid
from sleeper.model.column_types import duration_text


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
        again = default_value(text, kind)
        if again != array[0] and not _are_nan(again, array[0]):
            raise ValueError(f"it would become {again}")
    except MISFITS as error:
        reason = str(error).splitlines()[0]
        raise SchemaInvalid(
            f"the default of field {name!r} must be a value of {kind}, not {value!r:.200}: {reason}"
        ) from None
    return text


def default_value(text: str | None, kind: pa.DataType) -> pa.Scalar:
    """Return the default that a schema says, of the type of its field; a null for None.

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
            f"the default {text!r:.200} of a field is no value of {kind}: {error}"
        ) from None


def _are_nan(one: pa.Scalar, other: pa.Scalar) -> bool:
    return bool(pa.types.is_floating(one.type)) and one.as_py() != one.as_py() != other.as_py()
