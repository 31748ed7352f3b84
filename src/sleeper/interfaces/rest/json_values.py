"""Writes answers as JSON, and reads SQL and split points of requests.

Which rows a request asks for is read by `tables/asked_json.py`.
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
from sleeper.model.schema import Schema
from sleeper.tables.asked_json import key_value_of

_SQL_LENGTH_MAX = 16_384
_OPERATORS_MAX = 500


def json_answer(
    value: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a result value as the JSON body of an answer."""
    body = json_text(value)
    return Response(body, status, media_type="application/json", headers=dict(headers or {}))


def json_text(value: Any) -> bytes:
    """Return a result value as JSON."""
    return json.dumps(value, default=plain_value, allow_nan=False).encode()


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
        return [key_value_of(schema.row_keys[0], value) for value in document]
    except QueryInvalid as error:
        raise SplitPointsInvalid(str(error)) from None
