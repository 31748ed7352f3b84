"""Routes of rows: query, count, SQL, and what changed."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Final

from anyio import to_thread
from fastapi import APIRouter, Request
from fastapi import Query as UrlQuery
from fastapi.responses import Response

from sleeper.errors import QueryInvalid
from sleeper.interfaces.rest.answers import MEDIA_TYPES, answer_format, rows_answer
from sleeper.interfaces.rest.authorization import READ, CheckedRoute
from sleeper.interfaces.rest.bodies import DiffBody, Query, Question, SqlBody
from sleeper.interfaces.rest.json_values import json_answer
from sleeper.interfaces.rest.routes.tables import answers
from sleeper.interfaces.rest.served_instance import served_instance
from sleeper.interfaces.rest.statements import questions
from sleeper.interfaces.rest.statements.process_pool import statements_of
from sleeper.interfaces.rest.statements.questions import Call, version_of

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


@router.post("/query", dependencies=[READ], responses=ROWS_ANSWERS)
async def query(table: str, body: Query, request: Request) -> Response:
    """Read rows by key, range or prefix, in key order; all rows without.

    An answer in one JSON document has a limit of rows; the other formats are streams.
    """
    accept = request.headers.get("accept")
    call = partial(questions.query, table=table, body=body, accept=accept)
    return await _answer(request, call, has_sql=body.where is not None)


@router.post("/count", dependencies=[READ], responses=answers({"rows": 336776}))
async def count(table: str, body: Question, request: Request) -> Response:
    """Count rows; mostly none is read for it."""
    call = partial(questions.count, table=table, body=body)
    return await _answer(request, call, has_sql=body.where is not None)


@router.post("/sql", dependencies=[READ], responses=ROWS_ANSWERS)
async def table_sql(table: str, body: SqlBody, request: Request) -> Response:
    """Run one SQL statement that reads this table, by its name.

    With `explain` the answer is a JSON document with its plan.
    """
    accept = request.headers.get("accept")
    call = partial(questions.table_sql, table=table, body=body, accept=accept)
    return await _answer(request, call, has_sql=True)


@instance_router.post("/sql", dependencies=[READ], responses=ROWS_ANSWERS)
async def instance_sql(body: SqlBody, request: Request) -> Response:
    """Run one SQL statement that reads tables of the instance, by their names.

    With `explain` the answer is a JSON document with its plan.
    """
    if body.as_of is not None:
        raise QueryInvalid("as_of is for a statement about one table: /sleeper/tables/TABLE/sql")
    accept = request.headers.get("accept")
    call = partial(questions.instance_sql, body=body, accept=accept)
    return await _answer(request, call, has_sql=True)


async def _answer(request: Request, call: Call, *, has_sql: bool) -> Response:
    """Answer a question; one with SQL runs where statements run."""
    statements = statements_of(request) if has_sql else None
    if statements is not None:
        return await statements.answer(call, request.receive)
    answer = await to_thread.run_sync(call, served_instance(request))
    return answer.response()


@router.get("/history", dependencies=[READ])
def history(
    table: str,
    request: Request,
    limit: Annotated[
        int | None, UrlQuery(ge=0, description="How many of the last transactions.")
    ] = 100,
) -> Response:
    """List what the table's transactions did, the newest first, and which can be read."""
    opened = served_instance(request).table(table)
    return json_answer({"history": opened.history(limit), "kept": opened.kept_versions()})


@router.post("/diff", dependencies=[READ], responses=ROWS_ANSWERS)
def diff(table: str, body: DiffBody, request: Request) -> Response:
    """Read the rows that ingests added between two versions, in key order."""
    served = served_instance(request)
    form = answer_format(body.format, request.headers.get("accept"))
    before = version_of(body.before, "before")
    after = None if body.after is None else version_of(body.after, "after")
    rows = served.table(table).diff(before, after, columns=body.columns)
    return rows_answer(rows, form, served.limits).response()
