"""Which rows are asked for, as JSON: in requests to a server, and in messages of jobs.

    {"keys": ["N1", "N2"]}, {"range": {"tailnum": ["N1", "N2"]}}, {"where": "fare < 0"}

The names are those of the arguments of `Table.query` and `Table.delete`. Values are those of
`sleeper query --json`: numbers and strings as they are, bytes in base64, dates and timestamps in
ISO 8601.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from sleeper.engine.arrow_schema import to_arrow
from sleeper.engine.reading.regions import disjoint_regions
from sleeper.errors import QueryInvalid
from sleeper.lookup.keys import key_batch, key_rows
from sleeper.model.column_types import key_traits
from sleeper.model.formats.query_json import regions_to_json
from sleeper.model.keys import key_type, value_from_json, value_to_json
from sleeper.model.queries import NOT_GIVEN, asked_by, asked_regions, checked_key
from sleeper.model.schema import Field, Schema

_ENDS: Final = {"min", "minInclusive", "max", "maxInclusive"}

# ---------------------------------------------------------------- reading


def asked_from_json(schema: Schema, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments for `Table.query` that a document has, null included.

    Raises:
        QueryInvalid: a value is not one of its field.
    """
    asked = {
        name: read(schema, document[name])
        for name, read in _READERS.items()
        if document.get(name) is not None
    }
    if isinstance(document.get("regions"), list):
        asked["regions"] = [region_of(schema, region) for region in document["regions"]]
    others = ("key", "keys", "range", "regions", "prefix", "where")
    return asked | {n: document[n] for n in others if n in document and n not in asked}


def key_of(schema: Schema, document: Any) -> Any:
    """Return a row key, or a part of one, as `Table.query` takes it: from a value, list or object.

    Raises:
        QueryInvalid: a value is not one of its field.
    """
    if isinstance(document, Mapping):
        return _values_of(schema, document)
    values = document if isinstance(document, list) else [document]
    known = zip(schema.row_keys, values, strict=False)
    read = [key_value_of(field, value) for field, value in known] + values[len(schema.row_keys) :]
    return tuple(read) if isinstance(document, list) else read[0]


def keys_of(schema: Schema, document: Any) -> Any:
    """Return many row keys, as `Table.query` takes them.

    Raises:
        QueryInvalid: a value is not one of its field.
    """
    if not isinstance(document, list):
        return document
    return [key_of(schema, key) for key in document]


def region_of(schema: Schema, document: Any) -> Any:
    """Return a region as `Table.query` takes it.

    It is an object of `[min, max]`, of `[min, minInclusive, max, maxInclusive]`, or of objects with
    these names.

    Raises:
        QueryInvalid: a value is not one of its field, or a range has another form.
    """
    if not isinstance(document, Mapping):
        raise QueryInvalid(f"a region is an object of row key fields, not {document!r:.200}")
    fields = {field.name: field for field in schema.row_keys}
    return {
        name: _range(fields[name], ends) if name in fields else (None, None)
        for name, ends in document.items()
    }


def prefix_of(schema: Schema, document: Any) -> Any:
    """Return the prefixes of keys that a query asks for, as `Table.query` takes them."""
    return _values_of(schema, document) if isinstance(document, Mapping) else document


def key_value_of(field: Field, value: Any) -> Any:
    """Return a value of a row key field.

    Raises:
        QueryInvalid: it is none.
    """
    kind = key_type(field)
    form = key_traits(kind).text_form
    if form is not None and value is not None and not isinstance(value, str):
        raise QueryInvalid(
            f"{value!r:.200} is not a value for key field {field.name!r} of {kind.value}: it is "
            f"text in {form}"
        )
    return value_from_json(field, value)


def _values_of(schema: Schema, document: Mapping[str, Any]) -> dict[str, Any]:
    fields = {field.name: field for field in schema.row_keys}
    return {
        name: key_value_of(fields[name], value) if name in fields else value
        for name, value in document.items()
    }


def _range(field: Field, ends: Any) -> Any:
    if isinstance(ends, Mapping):
        if set(ends) - _ENDS:
            raise QueryInvalid(
                f"the range of {field.name!r} is an object of {', '.join(sorted(_ENDS))}, "
                f"not {ends!r:.200}"
            )
        ends = [
            ends.get("min"),
            ends.get("minInclusive", True),
            ends.get("max"),
            ends.get("maxInclusive", False),
        ]
    match ends:
        case [low, high]:
            return (_end(field, low), _end(field, high))
        case [low, bool(min_in), high, bool(max_in)]:
            return (_end(field, low), min_in, _end(field, high), max_in)
    raise QueryInvalid(
        f"the range of {field.name!r} is [min, max], or [min, minInclusive, max, maxInclusive], "
        f"not {ends!r:.200}"
    )


def _end(field: Field, value: Any) -> Any:
    return None if value is None else key_value_of(field, value)


_READERS: Final = {"key": key_of, "keys": keys_of, "range": region_of, "prefix": prefix_of}

# ---------------------------------------------------------------- writing


def asked_to_json(
    schema: Schema,
    *,
    key: object = NOT_GIVEN,
    keys: Any = NOT_GIVEN,
    range: Any = NOT_GIVEN,  # noqa: A002 - the field's own word
    regions: Any = NOT_GIVEN,
    prefix: Any = NOT_GIVEN,
) -> dict[str, Any]:
    """Return the document that asks for rows by their keys, as `Table.query` is asked.

    Raises:
        QueryInvalid: as `Table.query`.
    """
    asked = asked_by(key=key, keys=keys, range=range, regions=regions, prefix=prefix)
    if asked == "keys":
        return {"keys": _keys(schema, list(keys) if isinstance(keys, Iterator) else keys)}
    if asked == "key" and prefix is NOT_GIVEN:
        return {"key": _key(schema, key)}
    if asked is None and prefix is NOT_GIVEN:
        return {}
    found = disjoint_regions(asked_regions(schema, range, regions, key=key, prefix=prefix))
    return {"regions": json.loads(regions_to_json(schema, found))}


def _key(schema: Schema, key: object) -> dict[str, Any]:
    given = checked_key(schema, key)
    return {
        field.name: value_to_json(key_type(field), given[field.name])
        for field in schema.row_keys
        if field.name in given
    }


def _keys(schema: Schema, keys: Any) -> list[list[Any]]:
    kinds = [key_type(field) for field in schema.row_keys]
    return [
        [value_to_json(kind, value) for kind, value in zip(kinds, each, strict=True)]
        for each in key_rows(key_batch(keys, schema, to_arrow(schema)))
    ]
