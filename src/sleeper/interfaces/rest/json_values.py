"""Reads the JSON of requests: keys, ranges and split points, by the types of a table's row keys.

Values are those of `sleeper query --json`: numbers and strings as they are, bytes in base64, dates
and timestamps in ISO 8601.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi.responses import Response

from sleeper.engine.sql.deletions import deletion_in
from sleeper.engine.sql.statements import check_operators
from sleeper.errors import BadRequest, QueryInvalid, SplitPointsInvalid
from sleeper.interfaces.json_documents import plain_value
from sleeper.model.column_types import key_traits
from sleeper.model.keys import key_type, value_from_json
from sleeper.model.schema import Field, Schema

_SQL_LENGTH_MAX = 16_384
_OPERATORS_MAX = 500
_ENDS = {"min", "minInclusive", "max", "maxInclusive"}


def json_answer(
    value: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a result value as the JSON body of an answer."""
    body = json_text(value)
    return Response(body, status, media_type="application/json", headers=dict(headers or {}))


def json_text(value: Any) -> bytes:
    """Return a result value as JSON."""
    return json.dumps(value, default=plain_value, allow_nan=False).encode()


def key_of(schema: Schema, document: Any) -> Any:
    """Return a row key, or a part of one, as `Table.query` takes it: from a value, list or object.

    Raises:
        QueryInvalid: a value is not one of its field.
    """
    if isinstance(document, Mapping):
        fields = {field.name: field for field in schema.row_keys}
        return {
            name: _value(fields[name], value) if name in fields else value
            for name, value in document.items()
        }
    values = document if isinstance(document, list) else [document]
    known = zip(schema.row_keys, values, strict=False)
    read = [_value(field, value) for field, value in known] + values[len(schema.row_keys) :]
    return tuple(read) if isinstance(document, list) else read[0]


def keys_of(schema: Schema, document: Any) -> Any:
    """Return many row keys, as `Table.query` takes them.

    Raises:
        QueryInvalid: they are no list, or a value is not one of its field.
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
    if not isinstance(document, Mapping):
        return document
    fields = {field.name: field for field in schema.row_keys}
    return {
        name: _value(fields[name], value) if name in fields else value
        for name, value in document.items()
    }


def checked_sql(text: str, *, may_delete: bool = False) -> str:
    """Check that SQL of a request only reads, and needs no stack that is too deep to be planned.

    DataFusion plans a chain of operators by recursion: one of some thousand ends the process.

    Args:
        text: The SQL.
        may_delete: True for a request that may delete rows.

    Raises:
        QueryInvalid: it is too long, or deletes rows where it may not.
    """
    if not may_delete and deletion_in(text) is not None:
        raise QueryInvalid(
            "SQL only reads here, and nothing was deleted: delete rows by POST "
            "/sleeper/tables/TABLE/delete with where, or by `sleeper delete TABLE --where`"
        )
    check_operators(text, _OPERATORS_MAX)
    if len(text) > _SQL_LENGTH_MAX:
        raise QueryInvalid(
            f"the SQL has {len(text):,} characters; a server takes {_SQL_LENGTH_MAX:,}. Ask by "
            "keys= or regions=, or ask several times."
        )
    return text


def split_points_of(schema: Schema, document: Sequence[Any]) -> list[Any]:
    """Return split points of the first row key.

    Raises:
        SplitPointsInvalid: one is not a value of its type.
        BadRequest: the table has several row keys, as upstream's API refuses them.
    """
    if document and len(schema.row_keys) > 1:
        raise BadRequest("splitPoints are for tables with one row key field")
    try:
        return [_value(schema.row_keys[0], value) for value in document]
    except QueryInvalid as error:
        raise SplitPointsInvalid(str(error)) from None


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
    return None if value is None else _value(field, value)


def _value(field: Field, value: Any) -> Any:
    kind = key_type(field)
    form = key_traits(kind).text_form
    if form is not None and value is not None and not isinstance(value, str):
        raise QueryInvalid(
            f"{value!r:.200} is not a value for key field {field.name!r} of {kind.value}: it is "
            f"text in {form}"
        )
    return value_from_json(field, value)
