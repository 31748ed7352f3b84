"""Answers questions about rows: a query, a count, a statement in SQL.

Each function gets what is served, as the process knows it in which it runs, and returns the whole
answer. Its other arguments can be pickled.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any, Final, Literal, TypeVar

from pydantic import ValidationError

from sleeper.engine.writing.user_file import stream_rows
from sleeper.errors import BadRequest, QueryInvalid
from sleeper.interfaces.rest.answers import TRANSACTION, Answer, answer_format, rows_answer
from sleeper.interfaces.rest.bodies import (
    Body,
    Deletion,
    Query,
    Question,
    RowsByKey,
    SqlBody,
)
from sleeper.interfaces.rest.json_values import checked_sql, json_text
from sleeper.interfaces.rest.problems import wrong_form
from sleeper.interfaces.rest.served_instance import ServedInstance
from sleeper.model.schema import Schema
from sleeper.tables.asked_json import asked_from_json
from sleeper.tables.deletions.regions import check_few

Call = Callable[[ServedInstance], Answer]
"""A question whose arguments are given."""

BodyOf = TypeVar("BodyOf", bound=Body)

FileFormat = Literal["csv", "parquet", "arrow", "json"]
_JSON: Final = "application/json"


def query(served: ServedInstance, *, table: str, body: Query, accept: str | None) -> Answer:
    """Answer a query."""
    form = answer_format(body.format, accept)
    opened = served.table(table)
    asked = asked_of(opened.schema, body)
    for name in ("columns", "limit", "max_age"):
        if name in body.model_fields_set:
            asked[name] = getattr(body, name)
    return rows_answer(opened.query(**asked, ordered=body.ordered), form, served.limits)


def count(served: ServedInstance, *, table: str, body: Question) -> Answer:
    """Count rows."""
    opened = served.table(table)
    rows = opened.count(**asked_of(opened.schema, body))
    return Answer(media_type=_JSON, body=json_text({"rows": rows}))


def delete(
    served: ServedInstance, *, table: str, body: Deletion, if_unchanged_since: int | None
) -> Answer:
    """Delete rows."""
    opened = served.table(table)
    check_few(body.keys, body.regions)
    asked = asked_of(opened.schema, body)
    done = opened.delete(**asked, job_id=body.job_id, if_unchanged_since=if_unchanged_since)
    return Answer(media_type=_JSON, body=json_text(done))


def table_sql(served: ServedInstance, *, table: str, body: SqlBody, accept: str | None) -> Answer:
    """Answer a statement about one table."""
    statement, opened = checked_sql(body.statement), served.table(table)
    if body.explain:
        return _plan(opened.explain_sql(statement))
    form = answer_format(body.format, accept)
    as_of = None if body.as_of is None else version_of(body.as_of)
    return rows_answer(opened.sql(statement, as_of=as_of), form, served.limits)


def instance_sql(served: ServedInstance, *, body: SqlBody, accept: str | None) -> Answer:
    """Answer a statement about tables of the instance."""
    if body.as_of is not None:
        raise QueryInvalid("as_of is for a statement about one table: /sleeper/tables/TABLE/sql")
    statement = checked_sql(body.statement)
    if body.explain:
        return _plan(served.instance.explain_sql(statement))
    form = answer_format(body.format, accept)
    return rows_answer(served.instance.sql(statement), form, served.limits)


def sql_deletion(
    served: ServedInstance,
    *,
    table: str | None,
    body: SqlBody,
    accept: str | None,
    if_unchanged_since: int | None,
) -> Answer:
    """Delete rows as a statement says, of one table or any."""
    form = answer_format(body.format, accept)
    statement = checked_sql(body.statement, may_delete=True)
    if table is None:
        rows = served.instance.sql(statement, if_unchanged_since=if_unchanged_since)
    else:
        as_of = None if body.as_of is None else version_of(body.as_of)
        opened = served.table(table)
        rows = opened.sql(statement, as_of=as_of, if_unchanged_since=if_unchanged_since)
    return rows_answer(rows, form, served.limits)


QuestionKind = Literal["query", "count", "table_sql", "instance_sql"]


def large(
    served: ServedInstance, *, kind: QuestionKind, table: str, content: bytes, accept: str | None
) -> Answer:
    """Answer a question whose JSON is read here, for it may take far more memory than it is long.

    Raises:
        BadRequest: it is no JSON, or does not have the form of this kind of question.
    """
    match kind:
        case "query":
            return query(served, table=table, body=_read(Query, content), accept=accept)
        case "count":
            return count(served, table=table, body=_read(Question, content))
        case "table_sql":
            return table_sql(served, table=table, body=_read(SqlBody, content), accept=accept)
        case "instance_sql":
            return instance_sql(served, body=_read(SqlBody, content), accept=accept)


def _read(kind: type[BodyOf], content: bytes) -> BodyOf:
    try:
        return kind.model_validate(json.loads(content))
    except ValidationError as error:
        raise BadRequest(wrong_form(error.errors(include_input=False))) from None
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is no JSON: {error}") from None


def sql_file(served: ServedInstance, *, statement: str, limit: int, form: FileFormat) -> Answer:
    """Answer a statement by a file with its first rows."""
    rows = served.instance.sql(checked_sql(statement)).limited(limit)
    return Answer(
        media_type="application/octet-stream",
        headers={TRANSACTION: str(rows.transaction)},
        rows=rows,
        write_rows=partial(stream_rows, output_format=form),
    )


def _plan(text: str) -> Answer:
    return Answer(media_type=_JSON, body=json_text({"plan": text}))


def asked_of(schema: Schema, body: RowsByKey) -> dict[str, Any]:
    """Return the arguments for `Table.query`: those that the body has, null included.

    Raises:
        QueryInvalid: a value is not one of its field.
    """
    given = {name: getattr(body, name) for name in body.model_fields_set}
    asked = asked_from_json(schema, given)
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
