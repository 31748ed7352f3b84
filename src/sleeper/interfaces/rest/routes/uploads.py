"""The route that adds rows which a request brings along."""

from __future__ import annotations

import errno
import os
from functools import partial
from http import HTTPStatus
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, BinaryIO, Final
from urllib.parse import unquote

import pyarrow as pa
from anyio import to_thread
from fastapi import APIRouter, Header, HTTPException, Query, Request
from fastapi.responses import Response
from starlette.requests import ClientDisconnect

from sleeper.errors import InputRefused, InputUnreadable, StorageFailed, StorageFull
from sleeper.interfaces.rest.answers import MEDIA_TYPES
from sleeper.interfaces.rest.authorization import WRITE, CheckedRoute
from sleeper.interfaces.rest.json_values import json_answer
from sleeper.interfaces.rest.routes.tables import answers
from sleeper.interfaces.rest.served import served_by
from sleeper.operations.ingest import IngestResult
from sleeper.table.table import Table

router = APIRouter(
    prefix="/sleeper/tables/{table:segment}", tags=["rows"], route_class=CheckedRoute
)

JOB_ID: Final = "Sleeper-Job-Id"
_TYPES: Final = {name: form for name, form in MEDIA_TYPES.items() if form != "json"}
_END_OF_STREAM: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_RESULT: Final = {"rows_read": 2, "rows_written": 2, "transaction": 3, "job_id": "flights-2013"}


@router.post(
    "/rows",
    dependencies=[WRITE],
    responses=answers(_RESULT),
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                name: {"schema": {"type": "string", "format": "binary"}} for name in _TYPES
            },
        }
    },
)
async def add_rows(
    table: str,
    request: Request,
    sleeper_job_id: Annotated[
        str,
        Header(
            description="Identifies this job, percent-encoded. A request with the id of a job that "
            "was committed changes nothing, so it is safe to send a request again."
        ),
    ] = "",
    *,
    ignore_extra_columns: Annotated[
        bool, Query(description="true to drop columns that the table does not have.")
    ] = False,
) -> Response:
    """Add the rows of the body, all in one commit: Arrow stream, Parquet, CSV or JSON lines.

    A body that is cut off, or does not fit the table, changes nothing.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    form = _TYPES.get(media_type)
    if form is None:
        raise HTTPException(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"rows are sent as one of {', '.join(_TYPES)}, not {media_type!r:.200}",
        )
    opened = await to_thread.run_sync(served_by(request).table, table)
    with TemporaryDirectory(prefix="sleeper-upload-") as folder:
        path = os.path.join(folder, f"upload.{form}")  # noqa: PTH118 - a path object blocks no less
        await _received(request, path)
        ingest = partial(
            _ingested, opened, path, form, unquote(sleeper_job_id), extra=ignore_extra_columns
        )
        return json_answer(await to_thread.run_sync(ingest))


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


def _ingested(table: Table, path: str, form: str, job_id: str, *, extra: bool) -> IngestResult:
    """Ingest an upload.

    Raises:
        InputRefused: it does not fit the table.
    """
    try:
        if form != "arrow":
            return table.ingest([path], job_id or None, ignore_extra_columns=extra)
        _check_arrow(path)
        with pa.memory_map(path) as file, pa.ipc.open_stream(file) as reader:
            return table.ingest(reader, job_id or None, ignore_extra_columns=extra)
    except InputRefused as error:
        # The name of the temp file means nothing to who sent it.
        error.args = tuple(
            each.replace(path, f"upload.{form}") if isinstance(each, str) else each
            for each in error.args
        )
        raise


def _check_arrow(path: str) -> None:
    """Check a whole Arrow stream: its values must be what its types say, for nobody checks later.

    Raises:
        InputUnreadable: it is none, is cut off, or has values that are damaged.
    """
    try:
        with pa.memory_map(path) as file:
            with pa.ipc.open_stream(file) as reader:
                for batch in reader:
                    batch.validate(full=True)
            size = file.size()
            file.seek(max(0, size - 8))
            end = file.read()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputUnreadable(f"the upload is no Arrow stream that can be read: {error}") from None
    if end != _END_OF_STREAM:
        raise InputUnreadable("the upload is an Arrow stream without its end: it was cut off")
