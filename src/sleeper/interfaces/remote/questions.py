"""Turns the arguments of `Table.query` into the body of a request, checked as `Table` does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from sleeper.engine.arrow_schema import to_arrow
from sleeper.errors import QueryInvalid
from sleeper.lookup.key_batch import key_batch, key_rows
from sleeper.model.formats.regions_json import regions_to_json
from sleeper.model.keys import checked_value, key_type, value_to_json
from sleeper.model.queries import NOT_GIVEN, asked_by, asked_regions, checked_as_of, key_values
from sleeper.model.schema import Schema


def question(
    schema: Schema,
    *,
    key: object = NOT_GIVEN,
    keys: Any = NOT_GIVEN,
    range: Any = NOT_GIVEN,  # noqa: A002 - the field's own word
    regions: Any = NOT_GIVEN,
    prefix: Any = NOT_GIVEN,
    where: Any = None,
    as_of: Any = None,
) -> dict[str, Any]:
    """Return the body that asks for rows.

    Raises:
        QueryInvalid: as `Table.query`.
    """
    body: dict[str, Any] = {}
    asked = asked_by(key=key, keys=keys, range=range, regions=regions, prefix=prefix)
    if asked == "keys":
        body["keys"] = _keys(schema, list(keys) if isinstance(keys, Iterator) else keys)
    elif asked == "key" and prefix is NOT_GIVEN:
        body["key"] = _key(schema, key)
    elif asked is not None or prefix is not NOT_GIVEN:
        found = asked_regions(schema, range, regions, key=key, prefix=prefix)
        body["regions"] = json.loads(regions_to_json(schema, found))
    if where is not None:
        body["where"] = text_of(where, "where")
    if as_of is not None:
        body["as_of"] = version_document(as_of)
    return body


def _key(schema: Schema, key: object) -> dict[str, Any]:
    given = key_values(schema, key)
    return {
        field.name: value_to_json(key_type(field), checked_value(field, given[field.name]))
        for field in schema.row_keys
        if field.name in given
    }


def _keys(schema: Schema, keys: Any) -> list[list[Any]]:
    kinds = [key_type(field) for field in schema.row_keys]
    return [
        [value_to_json(kind, value) for kind, value in zip(kinds, each, strict=True)]
        for each in key_rows(key_batch(keys, schema, to_arrow(schema)))
    ]


def version_document(as_of: Any, name: str = "as_of") -> int | str | None:
    """Return a version as a JSON value.

    Raises:
        QueryInvalid: it is neither a transaction number nor an aware time.
    """
    checked = checked_as_of(as_of, name)
    return checked.isoformat() if isinstance(checked, datetime) else checked


def text_of(value: Any, name: str) -> str:
    """Check that a condition or a statement is text, and return it.

    Raises:
        QueryInvalid: it is not.
    """
    if not isinstance(value, str):
        raise QueryInvalid(f"{name} must be text in SQL, not {value!r}")
    return value
