"""Rows of a table are deleted: which ones is asked, then how many they are is shown, then they go.

1. a form says which rows: by key, by keys that are pasted, by a prefix, a range or a condition
2. its answer says how many rows these are now, shows the first of them, and asks once more
3. the second form deletes the rows that there are then, once by a job id, so that one that is sent
   again deletes nothing that was added since

Both forms are for who may write, and need the proof of a page of this server. What they ask is read
and done by the functions of REST.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from io import BytesIO
from typing import Any, Final

import pyarrow as pa
from fastapi import APIRouter
from fastapi.responses import Response
from starlette.datastructures import FormData

from sleeper.engine.row_grid import row_grid
from sleeper.errors import QueryInvalid, SleeperError
from sleeper.html.markup import Markup, counted
from sleeper.interfaces.page.rendering import path_of
from sleeper.interfaces.page.routes.rows import (
    by_key,
    by_prefix,
    by_range,
    key_fields,
)
from sleeper.interfaces.page.visits import PageRoute, Visit, Writing, WritingForm
from sleeper.interfaces.rest.bodies import Deletion, Query, Question
from sleeper.interfaces.rest.problems import problem_of
from sleeper.interfaces.rest.served_instance import served_instance
from sleeper.interfaces.rest.statements import questions
from sleeper.interfaces.rest.statements.questions import Call
from sleeper.jobs.deletions import check_deletion, deletion_document
from sleeper.model.authors import committing
from sleeper.model.keys import keys_of_lines
from sleeper.model.queries import NOT_GIVEN
from sleeper.tables.deletions.regions import check_few
from sleeper.tables.table import Table

router = APIRouter(route_class=PageRoute, include_in_schema=False)

_SHOWN: Final = 20
_NAMES: Final = {
    "key": "Key",
    "keys": "Pasted keys",
    "prefix": "Prefix",
    "range": "Range",
    "where": "Condition",
}
Asked = Mapping[str, str]


@router.get(path_of("tables") + "/{table:segment}/delete")
def ask_which(visit: Writing, table: str, by: str = "key") -> Response:
    """Show the form for which rows are to be deleted."""
    return _page(visit, visit.table(table), by if by in _NAMES else "key", {})


@router.post(path_of("tables") + "/{table:segment}/delete")
def delete(visit: WritingForm, table: str) -> Response:
    """Show what would go; or delete it, where the form says that it was shown."""
    opened = visit.table(table)
    given = _texts_of(visit.form)
    by = given.get("by", "")
    try:
        document = _document(opened, by, given)
        if given.get("sure") != "yes":
            return _asked_again(visit, opened, by, given, document)
        return _page(visit, opened, by, {}, told=_deleted(visit, opened, given, document))
    except SleeperError as error:
        return _page(visit, opened, by, given, error=error)


def _texts_of(form: FormData) -> dict[str, str]:
    return {name: text for name, text in form.items() if isinstance(text, str)}


def _document(table: Table, by: str, given: Asked) -> dict[str, Any]:
    """Return the rows that a form names as REST is asked for them.

    Raises:
        BadRequest: it names none, or they cannot be deleted.
    """
    if by not in _ASKED:
        raise QueryInvalid(f"say which rows, by one of {', '.join(_ASKED)}")
    asked = _ASKED[by](table, given)
    if by == "where":
        document = asked
    else:
        others = dict.fromkeys(("key", "keys", "range", "regions", "prefix"), NOT_GIVEN)
        document = deletion_document(table, others | asked)
        check_few(document.get("keys"), document.get("regions"))
    check_deletion(table, document)
    return document


def _asked_again(
    visit: Visit, table: Table, by: str, given: Asked, document: Mapping[str, Any]
) -> Response:
    """Show how many rows would go, and the first of them, with the form that deletes them."""
    count = _answer(visit, document, partial(_count, table.name, document))
    rows = json.loads(count)["rows"]
    with pa.ipc.open_stream(
        _answer(visit, document, partial(_first, table.name, document))
    ) as reader:
        first = reader.read_all()
    kept = {name: text for name, text in given.items() if name not in ("proof", "sure", "job_id")}
    return visit.page(
        "deletion_asked.html",
        table=table.name,
        by=by,
        rows=rows,
        shown=min(rows, _SHOWN),
        grid=row_grid(first) if rows else Markup(),
        facts=_facts(table, by, given),
        kept=[*kept.items(), ("job_id", visit.instance.jobs.new_id())],
    )


def _count(name: str, document: Mapping[str, Any]) -> Call:
    return partial(questions.count, table=name, body=Question(**document))


def _first(name: str, document: Mapping[str, Any]) -> Call:
    body = Query(**document, limit=_SHOWN, format="arrow")
    return partial(questions.query, table=name, body=body, accept=None)


def _answer(visit: Visit, document: Mapping[str, Any], call: Callable[[], Call]) -> bytes:
    """Return what a question is answered with; one with a condition runs where statements run."""
    content = BytesIO()
    if visit.statements is not None and "where" in document:
        visit.statements.write(call(), visit.request.receive, content)
    else:
        call()(served_instance(visit.request)).write(content)
    return content.getvalue()


def _deleted(visit: Visit, table: Table, given: Asked, document: Mapping[str, Any]) -> str:
    """Delete rows, and return what is told of it."""
    body = Deletion(**document, job_id=given.get("job_id") or None)
    with committing(reason=given.get("reason", "").strip() or None):
        answer = questions.delete(
            served_instance(visit.request), table=table.name, body=body, if_unchanged_since=None
        )
    done = json.loads(answer.body or b"")
    number = f"transaction {done['transaction']:,}"
    if done["already_committed"]:
        return f"These rows were deleted before, by {number}: nothing was deleted now."
    if done["rows"] is not None:
        return f"{counted(done['rows'], 'row')} of {table.name} went ({number})."
    what = "1 key or range" if done["regions"] == 1 else f"{done['regions']:,} keys and ranges"
    return f"The rows of {what} of {table.name} went ({number})."


def _page(
    visit: Visit,
    table: Table,
    by: str,
    values: Asked,
    *,
    error: SleeperError | None = None,
    told: str = "",
) -> Response:
    return visit.page(
        "deletion.html",
        status=200 if error is None else problem_of(error).status,
        table=table.name,
        by=by if by in _NAMES else "key",
        kinds=list(_NAMES.items()),
        fields=key_fields(table),
        values=values,
        failure="" if error is None else str(error),
        told=told,
    )


def _facts(table: Table, by: str, given: Asked) -> list[tuple[str, str]]:
    """Return what a form said, for people: names of inputs and their texts."""
    words = {"key": "is", "prefix": "begins with", "from": "from", "to": "to"}
    if by == "where":
        return [("condition", given.get("where", ""))]
    if by == "keys":
        return [("keys", f"{len(_lines_of(given)):,}")]
    return [
        (f"{field.name} {word}", text)
        for n, field in enumerate(table.schema.row_keys)
        for name, word in words.items()
        if (text := given.get(f"{name}{n}", "")) and name in (by, *_ENDS_OF.get(by, ()))
    ]


_ENDS_OF: Final = {"range": ("from", "to")}


def _lines_of(given: Asked) -> list[str]:
    return [line for line in re.split(r"\r\n|\n|\r", given.get("keys", "")) if line]


def _by_keys(table: Table, given: Asked) -> dict[str, Any]:
    lines = _lines_of(given)
    check_few(lines)
    if not lines:
        raise QueryInvalid("paste one key on each line")
    return {"keys": keys_of_lines(table.schema.row_keys, lines)}


def _by_condition(table: Table, given: Asked) -> dict[str, Any]:
    where = given.get("where", "").strip()
    if not where:
        raise QueryInvalid("give a condition in SQL, such as fare < 0")
    return {"where": where}


_ASKED: Final[Mapping[str, Callable[[Table, Asked], dict[str, Any]]]] = {
    "key": by_key,
    "keys": _by_keys,
    "prefix": by_prefix,
    "range": by_range,
    "where": _by_condition,
}
