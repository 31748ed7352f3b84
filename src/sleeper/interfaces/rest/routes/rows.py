"""Routes of rows: query, count, SQL, and what changed."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final

from fastapi import APIRouter, Request
from fastapi import Query as UrlQuery
from fastapi.responses import Response

from sleeper.errors import QueryInvalid
from sleeper.interfaces.rest.answers import MEDIA_TYPES, answer_format, answer_rows
from sleeper.interfaces.rest.authorization import READ, CheckedRoute
from sleeper.interfaces.rest.bodies import DiffBody, Query, Question, SqlBody
from sleeper.interfaces.rest.json_values import (
    checked_sql,
    json_answer,
    key_of,
    keys_of,
    prefix_of,
    region_of,
)
from sleeper.interfaces.rest.routes.tables import answers
from sleeper.interfaces.rest.served import served_by
from sleeper.model.schema import Schema

router = APIRouter(
    prefix="/sleeper/tables/{table:segment}", tags=["rows"], route_class=CheckedRoute
)
instance_router = APIRouter(prefix="/sleeper", tags=["rows"], route_class=CheckedRoute)

_ROWS: Final = {"transaction": 4, "rows": [{"tailnum": "N14228", "dest": "IAH"}]}
ROWS_ANSWERS: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "The rows, as the body's `format` or the header `Accept` asks for them. "
        "`Sleeper-Transaction` is the transaction that was read.",
        "content": {
            **answers(_ROWS)[200]["content"],
            **{name: {} for name in MEDIA_TYPES if name != "application/json"},
        },
    }
}
_READERS: Final = {"key": key_of, "keys": keys_of, "range": region_of, "prefix": prefix_of}


@router.post("/query", dependencies=[READ], responses=ROWS_ANSWERS)
def query(table: str, body: Query, request: Request) -> Response:
    """Read rows by key, range or prefix, in key order; all rows without.

    An answer in one JSON document has a limit of rows; the other formats are streams.
    """
    served = served_by(request)
    form = answer_format(body.format, request.headers.get("accept"))
    opened = served.table(table)
    asked = _asked(opened.schema, body)
    for name in ("columns", "limit", "max_age"):
        if name in body.model_fields_set:
            asked[name] = getattr(body, name)
    return answer_rows(opened.query(**asked, ordered=body.ordered), form, served.limits)


@router.post("/count", dependencies=[READ], responses=answers({"rows": 336776}))
def count(table: str, body: Question, request: Request) -> Response:
    """Count rows; mostly none is read for it."""
    opened = served_by(request).table(table)
    return json_answer({"rows": opened.count(**_asked(opened.schema, body))})


@router.post("/sql", dependencies=[READ], responses=ROWS_ANSWERS)
def table_sql(table: str, body: SqlBody, request: Request) -> Response:
    """Run one SQL statement that reads this table, by its name.

    With `explain` the answer is a JSON document with its plan.
    """
    served = served_by(request)
    statement, opened = checked_sql(body.statement), served.table(table)
    if body.explain:
        return json_answer({"plan": opened.explain_sql(statement)})
    form = answer_format(body.format, request.headers.get("accept"))
    as_of = None if body.as_of is None else version_of(body.as_of)
    return answer_rows(opened.sql(statement, as_of=as_of), form, served.limits)


@instance_router.post("/sql", dependencies=[READ], responses=ROWS_ANSWERS)
def instance_sql(body: SqlBody, request: Request) -> Response:
    """Run one SQL statement that reads tables of the instance, by their names.

    With `explain` the answer is a JSON document with its plan.
    """
    served = served_by(request)
    if body.as_of is not None:
        raise QueryInvalid("as_of is for a statement about one table: /sleeper/tables/TABLE/sql")
    statement = checked_sql(body.statement)
    if body.explain:
        return json_answer({"plan": served.instance.explain_sql(statement)})
    form = answer_format(body.format, request.headers.get("accept"))
    return answer_rows(served.instance.sql(statement), form, served.limits)


@router.get("/history", dependencies=[READ])
def history(
    table: str,
    request: Request,
    limit: Annotated[
        int | None, UrlQuery(ge=0, description="How many of the last transactions.")
    ] = 100,
) -> Response:
    """List what the table's transactions did, the newest first, and which can be read."""
    opened = served_by(request).table(table)
    return json_answer({"history": opened.history(limit), "kept": opened.kept_versions()})


@router.post("/diff", dependencies=[READ], responses=ROWS_ANSWERS)
def diff(table: str, body: DiffBody, request: Request) -> Response:
    """Read the rows that ingests added between two versions, in key order."""
    served = served_by(request)
    form = answer_format(body.format, request.headers.get("accept"))
    before = version_of(body.before, "before")
    after = None if body.after is None else version_of(body.after, "after")
    rows = served.table(table).diff(before, after, columns=body.columns)
    return answer_rows(rows, form, served.limits)


def _asked(schema: Schema, body: Question) -> dict[str, Any]:
    """Return the arguments for `Table.query`: those that the body has, null included.

    Raises:
        QueryInvalid: a value is not one of its field.
    """
    given = {name: getattr(body, name) for name in body.model_fields_set}
    asked = {
        name: read(schema, given[name])
        for name, read in _READERS.items()
        if name in given and given[name] is not None
    }
    if isinstance(given.get("regions"), list):
        asked["regions"] = [region_of(schema, region) for region in given["regions"]]
    others = ("key", "keys", "range", "regions", "prefix", "where")
    asked |= {name: given[name] for name in others if name in given and name not in asked}
    if isinstance(asked.get("where"), str):
        checked_sql(asked["where"])
    if given.get("as_of") is not None:
        asked["as_of"] = version_of(given["as_of"])
    return asked


def version_of(given: int | str, name: str = "as_of") -> int | datetime:
    """Return a version as `Table.query` takes it.

    Raises:
        QueryInvalid: it is no time.
    """
    if isinstance(given, int):
        return given
    try:
        return datetime.fromisoformat(given)
    except ValueError:
        raise QueryInvalid(
            f"{name} is a transaction number or a time in ISO 8601, not {given!r:.200}"
        ) from None
