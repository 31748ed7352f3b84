"""Rows of a table: asked for by key, prefix, range or SQL, shown as a grid, and downloaded."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from io import BytesIO
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Any, Final, Literal, get_args
from urllib.parse import urlencode

import pyarrow as pa
from fastapi import APIRouter
from fastapi.responses import FileResponse, Response
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from sleeper.engine.row_grid import row_grid
from sleeper.engine.rows import Rows
from sleeper.engine.writing.user_file import stream_rows
from sleeper.errors import QueryInvalid, SleeperError
from sleeper.html.markup import Markup
from sleeper.interfaces.page.rendering import HEADERS, path_of
from sleeper.interfaces.page.visits import PageRoute, Reading, Visit
from sleeper.interfaces.rest.answers import TRANSACTION
from sleeper.interfaces.rest.json_values import checked_sql
from sleeper.interfaces.rest.problems import problem_of
from sleeper.interfaces.rest.served_instance import served_instance
from sleeper.interfaces.rest.statements.questions import sql_file
from sleeper.model.column_types import key_traits
from sleeper.model.keys import key_type, value_from_text
from sleeper.tables.table import Table

router = APIRouter(route_class=PageRoute, include_in_schema=False)

DOWNLOAD_ROWS_MAX: Final = 1_000_000
"""Rows of a download; larger ones are for `sleeper export` and REST, which stream them."""

_LIMITS: Final = (20, 100, 500)
Format = Literal["csv", "parquet", "arrow", "json"]
_TYPES: Final[Mapping[str, str]] = {
    "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
    "arrow": "application/vnd.apache.arrow.file",
    "json": "application/jsonl",
}
Asked = Mapping[str, str]


class _DeletedFileResponse(FileResponse):
    """A file that is deleted when it was sent, or when its client went away or is too slow."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            os.unlink(self.path)  # noqa: PTH108 - a path object blocks no less


@router.get(path_of("tables") + "/{table:segment}/rows")
def show_rows(visit: Reading, table: str, by: str = "key", limit: int = _LIMITS[0]) -> Response:
    """Show a form for a question, and its answer; without a question the first rows."""
    opened = visit.table(table)
    given = dict(visit.request.query_params)
    if by not in _QUESTIONS:
        raise HTTPException(HTTPStatus.NOT_FOUND, "there is no such kind of question")
    most = limit if limit in _LIMITS else _LIMITS[0]
    asked = "ask" in given
    grid, caption, failure, status, is_nested = Markup(), "", "", 200, False
    try:
        ask = _QUESTIONS[by] if asked else _all_rows
        rows = ask(visit, opened, given, most + 1)
        is_nested = any(pa.types.is_nested(each.type) for each in rows.schema)
        grid, caption = grid_of(rows, most)
    except SleeperError as error:
        failure, status = str(error), problem_of(error).status
    values = {key: text for key, text in given.items() if key not in ("ask", "done")}
    answered = given if asked else {"by": "all"}
    links = [
        (each, _address(opened.name, f"rows.{each}", answered))
        for each in get_args(Format)
        if each != "csv" or not is_nested  # CSV has no form for lists, maps and structs
    ]
    return visit.page(
        "rows.html",
        status=status,
        table=opened.name,
        by=by,
        kinds=list(_NAMES.items()),
        fields=key_fields(opened),
        values=values if asked else {},
        asked=asked,
        sql_example=_statement(opened.name, most),
        limit=most,
        limits=_LIMITS,
        grid=grid,
        caption=caption,
        failure=failure,
        links=links,
        download_max=DOWNLOAD_ROWS_MAX,
    )


@router.get(path_of("tables") + "/{table:segment}/rows.{form}")
def download(visit: Reading, table: str, form: Format, by: str = "key") -> Response:
    """Return the answer to a question as a file."""
    opened = visit.table(table)
    if by not in _QUESTIONS:
        raise HTTPException(HTTPStatus.NOT_FOUND, "there is no such kind of question")
    with NamedTemporaryFile(prefix="sleeper-download-", delete=False) as file:
        path = Path(file.name)
        try:
            given = dict(visit.request.query_params)
            if by == "sql" and visit.statements is not None:
                _sql_file(visit, given, DOWNLOAD_ROWS_MAX, form, file)
            else:
                rows = _QUESTIONS[by](visit, opened, given, DOWNLOAD_ROWS_MAX)
                stream_rows(rows, file, form)
        except BaseException:
            path.unlink()
            raise
    return _DeletedFileResponse(
        path,
        media_type=_TYPES[form],
        filename=f"{opened.name}.{form}",
        headers=dict(HEADERS),
    )


def key_fields(table: Table) -> list[tuple[int, str, str]]:
    """Return number, name and an example of each row key field, as forms show them."""
    return [
        (n, field.name, key_traits(key_type(field)).example)
        for n, field in enumerate(table.schema.row_keys)
    ]


def by_key(table: Table, given: Asked) -> dict[str, Any]:
    """Return the argument of `Table.query` for the key that a form has, or its first fields.

    Raises:
        QueryInvalid: it has none, or a value is not one of its field.
    """
    key = _texts(table, given, "key")
    if not key:
        raise QueryInvalid("give a value for at least the first field of the key")
    return {"key": key}


def by_prefix(table: Table, given: Asked) -> dict[str, Any]:
    """Return the argument of `Table.query` for the prefixes that a form has.

    Raises:
        QueryInvalid: it has none.
    """
    prefix = {
        field.name: text
        for n, field in enumerate(table.schema.row_keys)
        if (text := given.get(f"prefix{n}", ""))
    }
    if not prefix:
        raise QueryInvalid("give the beginning of at least one field of the key")
    return {"prefix": prefix}


def by_range(table: Table, given: Asked) -> dict[str, Any]:
    """Return the argument of `Table.query` for the range that a form has, both ends included.

    Raises:
        QueryInvalid: it has none, or a value is not one of its field.
    """
    least, greatest = _texts(table, given, "from"), _texts(table, given, "to")
    names = [name for name in table.schema.row_key_names if name in least or name in greatest]
    if not names:
        raise QueryInvalid("give a first or a last value of at least one field of the key")
    limits = {name: (least.get(name), True, greatest.get(name), name in greatest) for name in names}
    return {"range": limits}


def _rows_by(
    asked: Callable[[Table, Asked], dict[str, Any]],
    visit: Visit,
    table: Table,
    given: Asked,
    limit: int,
) -> Rows:
    return table.query(**asked(table, given), limit=limit)


def _all_rows(visit: Visit, table: Table, given: Asked, limit: int) -> Rows:
    return table.query(limit=limit)


def _by_sql(visit: Visit, table: Table, given: Asked, limit: int) -> Rows:
    if visit.statements is None:
        return visit.instance.sql(checked_sql(given.get("sql", ""))).limited(limit)
    file = _SmallFile(served_instance(visit.request).limits.answer_bytes)
    headers = _sql_file(visit, given, limit, "arrow", file)
    with pa.ipc.open_file(pa.py_buffer(file.getbuffer())) as reader:
        return Rows.from_table(reader.read_all(), transaction=int(headers[TRANSACTION]))


def _sql_file(
    visit: Visit, given: Asked, limit: int, form: Format, file: IO[bytes]
) -> Mapping[str, str]:
    """Write the first rows of a statement to a file, and return the headers of the answer."""
    assert visit.statements is not None
    call = partial(sql_file, statement=given.get("sql", ""), limit=limit, form=form)
    return visit.statements.write(call, visit.request.receive, file)


class _SmallFile(BytesIO):
    """A file in memory, of bounded size."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__()
        self._bytes_max = bytes_max

    def write(self, data: Any) -> int:
        """Add bytes.

        Raises:
            QueryInvalid: they are too many.
        """
        if self.tell() + len(data) > self._bytes_max:
            raise QueryInvalid(
                f"the rows have more than {self._bytes_max:,} bytes, which is too much for a page: "
                "select fewer columns, or download them"
            )
        return super().write(data)


_QUESTIONS: Final[Mapping[str, Callable[[Visit, Table, Asked, int], Rows]]] = {
    "key": partial(_rows_by, by_key),
    "prefix": partial(_rows_by, by_prefix),
    "range": partial(_rows_by, by_range),
    "all": _all_rows,
    "sql": _by_sql,
}
_NAMES: Final = {
    "key": "Key",
    "prefix": "Prefix",
    "range": "Range",
    "all": "First rows",
    "sql": "SQL",
}


def _texts(table: Table, given: Asked, what: str) -> dict[str, Any]:
    """Return the values of key fields that a form has, by name; empty inputs are left out."""
    return {
        field.name: value_from_text(field, text)
        for n, field in enumerate(table.schema.row_keys)
        if (text := given.get(f"{what}{n}", ""))
    }


def _statement(table: str, limit: int) -> str:
    """Return a statement to begin with."""
    name = table.replace('"', '""')
    return f'SELECT * FROM "{name}" LIMIT {limit}'  # noqa: S608 - shown in a form, not run


def grid_of(rows: Rows, limit: int) -> tuple[Markup, str]:
    """Return a table of rows, and what it is."""
    found = rows.to_arrow()
    count = found.num_rows
    if count > limit:
        caption = f"The first {limit} rows; there are more"
    else:
        caption = f"{count} {'row' if count == 1 else 'rows'}"
    version = f" Transaction {rows.transaction:,}." if rows.transaction else ""
    return row_grid(found.slice(0, limit)), f"{caption}.{version}"


def _address(table: str, page: str, given: Asked) -> str:
    kept = {key: text for key, text in given.items() if key not in ("limit", "ask", "done")}
    return f"{path_of('tables', table, page)}?{urlencode(kept)}"
