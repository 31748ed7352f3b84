"""Routes of rows: query, count, SQL, and what changed."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Final

from anyio import to_thread
from fastapi import APIRouter, HTTPException, Request
from fastapi import Query as UrlQuery
from fastapi.responses import Response
from starlette.requests import ClientDisconnect

from sleeper.engine.sql.deletions import deletion_in
from sleeper.errors import QueryInvalid
from sleeper.interfaces.rest.answers import MEDIA_TYPES, answer_format, rows_answer
from sleeper.interfaces.rest.authorization import READ, WRITE, CheckedRoute, check_role
from sleeper.interfaces.rest.bodies import (
    Deletion,
    DiffBody,
    Query,
    Question,
    SqlBody,
    UnchangedSinceParameter,
)
from sleeper.interfaces.rest.json_values import json_answer
from sleeper.interfaces.rest.routes.tables import answers
from sleeper.interfaces.rest.served_instance import served_instance
from sleeper.interfaces.rest.statements import questions
from sleeper.interfaces.rest.statements.process_handle import STATEMENT, CallKind
from sleeper.interfaces.rest.statements.process_pool import statements_of
from sleeper.interfaces.rest.statements.questions import Call, QuestionKind, version_of
from sleeper.interfaces.rest.tokens import Role
from sleeper.tables.sql import check_deletes

_READ_HERE_BYTES: Final = 64 << 10
"""A question that is longer is read where statements run: what is made of 16 MiB of JSON, such as
700,000 regions, takes 700 MB and a minute, and nobody could stop it here."""

_KINDS: Final[dict[str, QuestionKind]] = {
    "query": "query",
    "count": "count",
    "table_sql": "table_sql",
    "instance_sql": "instance_sql",
}


class _QuestionRoute(CheckedRoute):
    """A route whose questions are read in a process of statements if they are long."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, which looks first how long a question is."""
        handle, kind = super().get_route_handler(), _KINDS.get(self.name)
        if kind is None:
            return handle

        async def answered_by_length(request: Request) -> Response:
            length = request.headers.get("content-length", "")
            if length.isdecimal() and int(length) <= _READ_HERE_BYTES:
                return await handle(request)
            await check_role(request, Role.READ)
            try:
                content = await request.body()
            except ClientDisconnect:
                raise HTTPException(HTTPStatus.BAD_REQUEST, "the client left") from None
            if len(content) <= _READ_HERE_BYTES:
                return await handle(request)
            check_deletes(request.query_params.get("if_unchanged_since"))
            call = partial(
                questions.large,
                kind=kind,
                table=request.path_params.get("table", ""),
                content=content,
                accept=request.headers.get("accept"),
            )
            return await _answer(request, call, is_bounded=True, kind=_LONG)

        return answered_by_length


router = APIRouter(
    prefix="/sleeper/tables/{table:segment}", tags=["rows"], route_class=_QuestionRoute
)
instance_router = APIRouter(prefix="/sleeper", tags=["rows"], route_class=_QuestionRoute)

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
    return await _answer(request, call, is_bounded=body.where is not None)


@router.post("/count", dependencies=[READ], responses=answers({"rows": 336776}))
async def count(table: str, body: Question, request: Request) -> Response:
    """Count rows; mostly none is read for it."""
    call = partial(questions.count, table=table, body=body)
    return await _answer(request, call, is_bounded=body.where is not None)


_DELETED = answers({"transaction": 5, "regions": 1, "rows": None})


@router.post("/delete", dependencies=[WRITE], responses=_DELETED)
async def delete(
    table: str, body: Deletion, request: Request, if_unchanged_since: UnchangedSinceParameter = None
) -> Response:
    """Delete rows by key, range or prefix, or by a condition, in one transaction.

    Rows that are added later stay. By their keys, the table needs format 2 (`upgrade`), and how
    many rows went is not known. By a condition, leaves that have such rows are written anew.
    """
    call = partial(questions.delete, table=table, body=body, if_unchanged_since=if_unchanged_since)
    return await _answer(request, call, is_bounded=False)


@router.post("/sql", dependencies=[READ], responses=ROWS_ANSWERS)
async def table_sql(
    table: str, body: SqlBody, request: Request, if_unchanged_since: UnchangedSinceParameter = None
) -> Response:
    """Run one SQL statement that reads this table, or deletes rows of it, by its name.

    With `explain` the answer is a JSON document with its plan. DELETE needs the role `write`, and
    answers with one row: how many rows went.
    """
    accept = request.headers.get("accept")
    if _deletes(body):
        return await _sql_deletion(request, table, body, if_unchanged_since)
    check_deletes(if_unchanged_since)
    call = partial(questions.table_sql, table=table, body=body, accept=accept)
    return await _answer(request, call, is_bounded=True)


@instance_router.post("/sql", dependencies=[READ], responses=ROWS_ANSWERS)
async def instance_sql(
    body: SqlBody, request: Request, if_unchanged_since: UnchangedSinceParameter = None
) -> Response:
    """Run one SQL statement that reads tables of the instance, or deletes rows of one.

    With `explain` the answer is a JSON document with its plan. DELETE needs the role `write`, and
    answers with one row: how many rows went.
    """
    accept = request.headers.get("accept")
    if _deletes(body) and body.as_of is None:
        return await _sql_deletion(request, None, body, if_unchanged_since)
    check_deletes(if_unchanged_since)
    call = partial(questions.instance_sql, body=body, accept=accept)
    return await _answer(request, call, is_bounded=True)


def _deletes(body: SqlBody) -> bool:
    return not body.explain and deletion_in(body.statement) is not None


async def _sql_deletion(
    request: Request, table: str | None, body: SqlBody, if_unchanged_since: int | None
) -> Response:
    """Delete rows by a statement, for whoever may write."""
    await check_role(request, Role.WRITE)
    accept = request.headers.get("accept")
    call = partial(
        questions.sql_deletion,
        table=table,
        body=body,
        accept=accept,
        if_unchanged_since=if_unchanged_since,
    )
    return await _answer(request, call, is_bounded=False)


def _lacks(memory_bytes: int) -> QueryInvalid:
    return QueryInvalid(
        f"the question needs more than the {memory_bytes >> 20:,} MB of memory that it may use: "
        "ask for fewer keys or regions at once. Whoever runs the server may allow more "
        "(--statement-mb)."
    )


_LONG: Final = CallKind(lacks=_lacks)


async def _answer(
    request: Request, call: Call, *, is_bounded: bool, kind: CallKind = STATEMENT
) -> Response:
    """Answer a question; one with SQL, and a long one, runs where statements run."""
    statements = statements_of(request) if is_bounded else None
    if statements is not None:
        return await statements.answer(call, request.receive, kind)
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
