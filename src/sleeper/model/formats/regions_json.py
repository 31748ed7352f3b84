"""Reads and writes regions as JSON, in the form of upstream's queries (rule QRY-8).

    [{"id": {"min": "a", "minInclusive": true, "max": "b", "maxInclusive": false}}]

A region is an object of row key fields. A field that is missing may have any value; a `max` of
null means no upper limit. Bytes are base64, and strings too if `stringsBase64Encoded` is true;
dates and timestamps are ISO 8601.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import Any

from sleeper.errors import QueryInvalid
from sleeper.model.keys import (
    key_type,
    shown_value,
    value_from_json,
    value_from_text,
    value_to_json,
)
from sleeper.model.queries import region_from_request
from sleeper.model.ranges import Range, Region
from sleeper.model.schema import Field, Primitive, Schema

_BASE64 = "stringsBase64Encoded"
_ENTRIES = {"min", "minInclusive", "max", "maxInclusive"}


def regions_to_json(schema: Schema, regions: Iterable[Region]) -> str:
    """Write canonical regions as JSON."""
    document = [
        {
            field.name: _range_to_json(field, key_range)
            for field, key_range in zip(schema.row_keys, region.ranges, strict=True)
        }
        for region in regions
    ]
    return json.dumps(document)


def regions_from_json(schema: Schema, text: str) -> tuple[Region, ...]:
    """Read regions from JSON.

    Raises:
        QueryInvalid: it is not JSON of this form, a field is not a row key, or a value has the
            wrong type.
    """
    try:
        document = json.loads(text)
    except ValueError as error:
        raise QueryInvalid(f"regions are not JSON: {error}") from None
    if not isinstance(document, list):
        raise QueryInvalid(f"regions are a JSON list of objects, not {text[:200]}")
    return tuple(region_from_document(schema, region, base64_strings=False) for region in document)


def region_to_document(schema: Schema, region: Region) -> dict[str, Any]:
    """Return a canonical region as upstream writes it: all strings are in base64.

    They are not where a field has the name of the flag that says so.
    """
    document: dict[str, Any] = {_BASE64: True}
    for field, key_range in zip(schema.row_keys, region.ranges, strict=True):
        ends = _range_to_json(field, key_range)
        if key_type(field) is Primitive.STRING and _BASE64 not in schema.row_key_names:
            ends |= {end: _in_base64(ends[end]) for end in ("min", "max")}
        document[field.name] = ends
    return document


def _in_base64(text: str | None) -> str | None:
    return None if text is None else b64encode(text.encode()).decode()


def _range_to_json(field: Field, key_range: Range) -> dict[str, Any]:
    kind = key_type(field)
    return {
        "min": value_to_json(kind, key_range.min),
        "minInclusive": True,
        "max": value_to_json(kind, key_range.max),
        "maxInclusive": False,
    }


def region_from_document(schema: Schema, document: object, *, base64_strings: bool) -> Region:
    """Read a region from a JSON value.

    Args:
        schema: The table's.
        document: The region.
        base64_strings: Whether its strings are in base64 where it does not say so itself; in
            upstream's messages they are.

    Raises:
        QueryInvalid: it has another form, names a field that is no row key, or holds a value of
            the wrong type.
    """
    if not isinstance(document, Mapping):
        raise QueryInvalid(
            f"a region is a JSON object of row key fields, not {shown_value(document)}"
        )
    in_base64 = document.get(_BASE64, base64_strings) is True
    fields = {field.name: field for field in schema.row_keys}
    given = {name: value for name, value in document.items() if name != _BASE64 or name in fields}
    region_from_request(schema, dict.fromkeys(given, (None, None)))  # are they row keys?
    request = {
        name: _range_from_json(fields[name], value, in_base64=in_base64)
        for name, value in given.items()
    }
    return region_from_request(schema, request)


def _range_from_json(
    field: Field, document: object, *, in_base64: bool
) -> tuple[Any, bool, Any, bool]:
    if not isinstance(document, Mapping) or set(document) - _ENTRIES:
        raise QueryInvalid(
            f"the range of {field.name!r} is an object of {', '.join(sorted(_ENTRIES))}, "
            f"not {shown_value(document)}"
        )
    low, high = (
        _value_from_json(field, document.get(end), in_base64=in_base64) for end in ("min", "max")
    )
    return (
        low,
        document.get("minInclusive", True) is True,
        high,
        document.get("maxInclusive", False) is True,
    )


def _value_from_json(field: Field, value: Any, *, in_base64: bool) -> Any:
    if in_base64 and isinstance(value, str) and key_type(field) is Primitive.STRING:
        return value_from_text(field, value, base64_encoded=True)
    return value_from_json(field, value)
