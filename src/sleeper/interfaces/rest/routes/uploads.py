"""The route that adds rows which a request brings along."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from email.message import EmailMessage
from functools import partial
from http import HTTPStatus
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, BinaryIO, Final
from urllib.parse import unquote

from anyio import to_thread
from fastapi import APIRouter, Depends, Header, HTTPException, Query, Request
from fastapi.responses import Response
from starlette.requests import ClientDisconnect
from starlette.types import Message

from sleeper.errors import InputUnreadable, StorageFailed, StorageFull
from sleeper.interfaces.rest.answers import MEDIA_TYPES
from sleeper.interfaces.rest.authorization import ADMIN, WRITE, CheckedRoute
from sleeper.interfaces.rest.bodies import UnchangedSinceParameter
from sleeper.interfaces.rest.json_values import json_answer
from sleeper.interfaces.rest.routes.tables import answers
from sleeper.interfaces.rest.served_instance import served_instance
from sleeper.interfaces.rest.statements.process_handle import CallKind
from sleeper.interfaces.rest.statements.process_pool import statements_of
from sleeper.interfaces.rest.statements.upload_ingest import ingest_upload, is_plain, upload_schema
from sleeper.model.csv_options import CsvOptions

router = APIRouter(
    prefix="/sleeper/tables/{table:segment}", tags=["rows"], route_class=CheckedRoute
)

JOB_ID: Final = "Sleeper-Job-Id"
_TYPES: Final = {name: form for name, form in MEDIA_TYPES.items() if form != "json"}
_RESULT: Final = {"rows_read": 2, "rows_written": 2, "transaction": 3, "job_id": "flights-2013"}
_CREATED: Final = {
    "tableId": "1f0c61a2",
    "tableName": "flights",
    "schema": {"rowKeyFields": [{"name": "tailnum", "type": "StringType"}]},
}
_BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {name: {"schema": {"type": "string", "format": "binary"}} for name in _TYPES},
    }
}


def csv_of(
    request: Request,
    *,
    csv_separator: Annotated[
        str | None, Query(description="Between values of CSV; a comma without it.")
    ] = None,
    csv_quote: Annotated[
        str | None, Query(description="Around values that need it; empty for none.")
    ] = None,
    csv_encoding: Annotated[
        str | None, Query(description="Such as latin-1; the charset of the type without it.")
    ] = None,
    csv_header: Annotated[
        bool | None, Query(description="false without names in the first row.")
    ] = None,
    csv_column: Annotated[
        list[str] | None,
        Query(description="Once for each column: its name, instead of that in the header."),
    ] = None,
    csv_null: Annotated[
        list[str] | None,
        Query(description="Once for each text that is null where it is not in quotes."),
    ] = None,
    csv_decimal_point: Annotated[str | None, Query(description="A point or a comma.")] = None,
) -> CsvOptions | None:
    """Return how the CSV of a request is written; None if nothing says that it is unusual.

    Raises:
        BadRequest: a value is not allowed.
    """
    content = EmailMessage()
    content["Content-Type"] = request.headers.get("content-type", "")
    charset = content.get_content_charset()
    given = {
        "separator": csv_separator,
        "encoding": csv_encoding or charset,
        "header": csv_header,
        "column_names": csv_column,
        "null_texts": csv_null,
        "decimal_point": csv_decimal_point,
    }
    values: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if csv_quote is not None:
        values["quote"] = csv_quote or None
    return CsvOptions(**values) if values else None


@router.post(
    "/rows",
    dependencies=[WRITE],
    responses=answers(_RESULT),
    openapi_extra=_BODY,
)
async def add_rows(
    table: str,
    request: Request,
    sleeper_job_id: Annotated[
        str | None,
        Header(
            description="Identifies this job, percent-encoded. A request with the id of a job that "
            "was committed changes nothing, so it is safe to send a request again."
        ),
    ] = None,
    *,
    ignore_extra_columns: Annotated[
        bool, Query(description="true to drop columns that the table does not have.")
    ] = False,
    upsert: Annotated[
        bool, Query(description="true to replace rows that have the same row keys.")
    ] = False,
    if_unchanged_since: UnchangedSinceParameter = None,
    csv: Annotated[CsvOptions | None, Depends(csv_of)] = None,
) -> Response:
    """Add the rows of the body, all in one commit: Arrow stream, Parquet, CSV or JSON lines.

    A body that is cut off, or does not fit the table, changes nothing. Parameters whose names begin
    with `csv_` say how CSV is written; its charset may also be that of the header `Content-Type`.
    """
    form = _form_of(request)
    opened = await to_thread.run_sync(served_instance(request).table, table)
    with TemporaryDirectory(prefix="sleeper-upload-") as folder:
        path = os.path.join(folder, f"upload.{form}")  # noqa: PTH118 - a path object blocks no less
        await _received(request, path)
        ingest = partial(
            ingest_upload,
            table=table,
            path=path,
            form=form,
            job_id=None if sleeper_job_id is None else unquote(sleeper_job_id),
            ignore_extra=ignore_extra_columns,
            upsert=upsert,
            if_unchanged_since=if_unchanged_since,
            csv=csv if form == "csv" else None,
        )
        statements = statements_of(request)
        if statements is None or await to_thread.run_sync(is_plain, path, form):
            answer = await to_thread.run_sync(ingest, served_instance(request))
            return answer.response()
        kind = CallKind(lacks=_lacks, more_bytes=opened.properties.ingest.memory_bytes)
        content = BytesIO()
        await statements.written(ingest, _stays, content, kind)
        return Response(content.getvalue(), media_type="application/json")


@router.post(
    "",
    status_code=201,
    dependencies=[ADMIN],
    responses=answers(_CREATED, 201),
    openapi_extra=_BODY,
)
async def create_table_like(
    table: str,
    request: Request,
    *,
    row_key: Annotated[
        list[str], Query(description="Once for each row key: its column.", min_length=1)
    ],
    sort_key: Annotated[
        list[str] | None, Query(description="Once for each sort key: its column.")
    ] = None,
    csv: Annotated[CsvOptions | None, Depends(csv_of)] = None,
) -> Response:
    """Create a table with the columns of the body, without its rows.

    The body is an Arrow stream, Parquet, CSV or JSON lines; of the last two, types are what the
    first 8 MiB suggest. The answer has the schema.
    """
    form = _form_of(request)
    with TemporaryDirectory(prefix="sleeper-upload-") as folder:
        path = os.path.join(folder, f"upload.{form}")  # noqa: PTH118 - a path object blocks no less
        await _received(request, path)
        schema = await to_thread.run_sync(
            partial(
                upload_schema,
                path,
                form,
                row_keys=row_key,
                sort_keys=sort_key or [],
                csv=csv if form == "csv" else None,
            )
        )
    create = partial(served_instance(request).instance.create_table, table, schema)
    made = await to_thread.run_sync(create)
    document = {"tableId": made.table_id, "tableName": made.name}
    return json_answer({**document, "schema": json.loads(schema.to_json())}, 201)


def _form_of(request: Request) -> str:
    """Return the form of a request's body, by its type.

    Raises:
        HTTPException: rows are not sent as such a type.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    form = _TYPES.get(media_type)
    if form is None:
        raise HTTPException(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"rows are sent as one of {', '.join(_TYPES)}, not {media_type!r:.200}",
        )
    return form


async def _received(request: Request, path: str) -> None:
    """Write the body of a request to a new file.

    Raises:
        HTTPException: the body is too large, came too slowly, or was cut off.
        StorageFailed: the file cannot be written.
    """
    try:
        file = await to_thread.run_sync(_new_file, path)
        try:
            async for chunk in request.stream():
                await to_thread.run_sync(partial(file.write, chunk))
        finally:
            await to_thread.run_sync(file.close)
    except ClientDisconnect:
        raise HTTPException(HTTPStatus.BAD_REQUEST, "the upload was cut off") from None
    except OSError as error:
        kind = StorageFull if error.errno == errno.ENOSPC else StorageFailed
        raise kind(
            f"the server cannot keep the upload until it is whole: {error.strerror}"
        ) from error


def _new_file(path: str) -> BinaryIO:
    return Path(path).open("xb")


async def _stays() -> Message:
    """Receive nothing: an upload that is whole is ingested though its client leaves."""
    await asyncio.Event().wait()
    raise AssertionError


def _lacks(memory_bytes: int) -> InputUnreadable:
    return InputUnreadable(
        f"the upload needs more than {memory_bytes >> 20:,} MB of memory to be read, far more than "
        "it is long. Nothing was ingested. Send smaller record batches or row groups, and long "
        "values without dictionaries; whoever runs the server may allow more (--statement-mb)."
    )
