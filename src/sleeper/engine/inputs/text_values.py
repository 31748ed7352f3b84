"""Converts text of CSV and JSON files to the types of a table, without changing a value.

Dates and timestamps are ISO 8601, with a zone exactly if the field has one. Bytes are base64.
Floats may be `inf` and `nan`; a number that is too large for its type is refused.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.columns.exact_cast import is_text
from sleeper.engine.panics import translated_panics


def csv_type(want: pa.DataType) -> pa.DataType:
    """Return the type to read a column of CSV as: text, where pyarrow's own parser is not exact.

    It makes floats infinite that are too large, and keeps decimals with too many digits.
    """
    is_ = pa.types
    if is_.is_binary(want) or is_.is_temporal(want) or is_.is_floating(want):
        return pa.string()
    return pa.string() if is_.is_decimal(want) else want


def json_type(want: pa.DataType) -> pa.DataType:
    """Return the type to read a field of JSON as: text or a wider number, as for `csv_type`."""
    is_ = pa.types
    if is_.is_list(want):
        return pa.list_(want.value_field.with_type(json_type(want.value_type)))
    if is_.is_map(want):  # as `json_maps` rewrites them
        return pa.list_(pa.struct([("key", pa.string()), ("value", json_type(want.item_type))]))
    if is_.is_binary(want) or is_.is_temporal(want):
        return pa.string()
    if is_.is_decimal(want):
        return pa.decimal128(38, want.scale)
    return pa.float64() if is_.is_floating(want) else want


def exact_values(column: pa.Array, want: pa.DataType) -> pa.Array:
    """Return a column that was read as `csv_type` or `json_type` says, as type `want`.

    Raises:
        MisfitText: a value does not fit.
    """
    if pa.types.is_nested(want) and column.type != want:
        plain = pa.concat_arrays([column]) if column.offset else column
        try:
            return _nested(plain, want)
        except MisfitText as misfit:  # its place is among the values
            row = int(np.searchsorted(plain.offsets.to_numpy(), misfit.place, "right")) - 1
            raise MisfitText(row, misfit.reason) from None
    try:
        return _converted(column, want)
    except (pa.ArrowInvalid, ValueError) as error:
        raise _first_misfit(column, want, error) from None


class MisfitText(Exception):
    """A text is not a value of a type.

    Attributes:
        place: Its place in the column.
        reason: What it is, and why it does not fit.
    """

    def __init__(self, place: int, reason: str) -> None:
        super().__init__(reason)
        self.place, self.reason = place, reason


def _nested(column: pa.Array, want: pa.DataType) -> pa.Array:
    """Return lists, or maps that were read as lists of entries, as type `want`."""
    mask = column.is_null() if column.null_count else None
    if pa.types.is_list(want):
        values = exact_values(column.values, want.value_type)
        return pa.ListArray.from_arrays(column.offsets, values, type=want, mask=mask)
    keys, values = column.values.field("key"), column.values.field("value")
    for part, allowed in ((keys, False), (values, want.item_field.nullable)):
        if part.null_count and not allowed:
            raise MisfitText(pc.index(part.is_null(), True).as_py(), "a map has a null")
    entries = exact_values(keys, want.key_type), exact_values(values, want.item_type)
    return pa.MapArray.from_arrays(column.offsets, *entries, type=want, mask=mask)


def _converted(column: pa.Array, want: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(want):
        found = column.cast(want)
        found.validate(full=True)
        return found
    if column.type == want:
        return column
    if pa.types.is_binary(want):
        return _bytes(column)
    return _floats(column, want) if pa.types.is_floating(want) else column.cast(want)


@translated_panics("polars")
def _bytes(column: pa.Array) -> pa.Array:
    import polars as pl  # noqa: PLC0415 - slow to import, and few inputs have bytes

    try:
        decoded = pl.Series(column).str.decode("base64", strict=True)
    except pl.exceptions.PolarsError as error:
        raise ValueError(str(error)) from None
    return decoded.to_arrow().cast(pa.binary())


def _floats(column: pa.Array, want: pa.DataType) -> pa.Array:
    """Convert text or doubles to floats, rounded to the nearest number of their type."""
    if is_text(column.type):
        text = pc.utf8_trim_whitespace(column)
        double = text.cast(pa.float64())
        is_infinite = pc.match_substring(text, "inf", ignore_case=True)
    else:
        double = column
        is_infinite = pc.is_inf(double)
    found = double.cast(want)
    too_large = pc.and_(pc.is_inf(found), pc.invert(is_infinite))
    too_small = pc.and_(pc.equal(found, 0), pc.not_equal(double, 0))
    if pc.any(pc.or_(too_large, too_small)).as_py():
        raise ValueError("it is out of the range of the type")
    return found


def _first_misfit(column: pa.Array, want: pa.DataType, error: Exception) -> MisfitText:
    """Find the first value that cannot be converted, by halving."""
    low, high = 0, len(column)
    reason = str(error)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            _converted(column.slice(low, middle - low), want)
            low = middle
        except (pa.ArrowInvalid, ValueError) as earlier:
            high, reason = middle, str(earlier)
    value: Any = column[low].as_py()
    shown = str(value) if pa.types.is_decimal(column.type) else repr(value)
    return MisfitText(low, f"{shown:.100} is not a value of {want}: {_why(value, want, reason)}")


def _why(value: Any, want: pa.DataType, reason: str) -> str:
    if pa.types.is_binary(want):
        try:
            base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError) as error:
            return f"it is not base64 ({error})"
    if "no zone offset" in reason:
        return "it has a time zone, and the field has none"
    if "zone offset" in reason:
        return "it has no time zone, and the field needs one: write it with Z or an offset"
    if pa.types.is_temporal(want):
        return "dates and timestamps are ISO 8601, such as 2026-01-31 or 2026-01-31T12:00:00Z"
    return reason.splitlines()[0].rpartition(": ")[2]
