"""Routes of jobs: submit them, follow them, and what waits in queues and in the batcher."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from sleeper.errors import BadRequest
from sleeper.interfaces.rest.answers import AnswerFormat, answer_format, rows_answer
from sleeper.interfaces.rest.authorization import (
    ADMIN,
    READ,
    WRITE,
    Caller,
    CheckedRoute,
    caller_of,
)
from sleeper.interfaces.rest.bodies import (
    Deletion,
    ExportJobBody,
    IngestJobBody,
    JobUnchangedSinceParameter,
    MessagesBody,
    QueryJobBody,
    RetriedJobsBody,
    SubmittedFilesBody,
)
from sleeper.interfaces.rest.json_values import json_answer
from sleeper.interfaces.rest.routes.rows import ROWS_ANSWERS
from sleeper.interfaces.rest.routes.tables import answers
from sleeper.interfaces.rest.served_instance import ServedInstance, served_instance
from sleeper.interfaces.rest.statements.questions import asked_of
from sleeper.interfaces.rest.tokens import Role
from sleeper.jobs.input_places import InputPlaces
from sleeper.model.csv_options import CsvOptions
from sleeper.model.jobs.kinds import JobKind, QueueName
from sleeper.model.jobs.query_statuses import QueryState
from sleeper.model.jobs.statuses import JobState
from sleeper.tables.deletions.regions import check_few

router = APIRouter(prefix="/sleeper", tags=["jobs"], route_class=CheckedRoute)

AnswerKind = Literal[JobKind.QUERY, JobKind.EXPORT]
TableOfQuery = Annotated[str | None, Query(description="Where two tables have a query of this id.")]
LimitQuery = Annotated[int, Query(ge=1, le=1000, description="At most so many.")]
_BUCKETS = ("s3://", "s3a://")


@router.post(
    "/tables/{table:segment}/jobs",
    status_code=202,
    dependencies=[WRITE],
    responses=answers({"job_id": "flights-2013"}, 202),
)
def submit_job(
    table: str,
    body: IngestJobBody,
    request: Request,
    caller: Annotated[Caller, Depends(caller_of)],
    if_unchanged_since: JobUnchangedSinceParameter = None,
) -> Response:
    """Ask for files to be ingested, or imported in bulk, by a worker (`sleeper serve`).

    `spark_conf` needs the role admin, for settings can name code that a cluster runs.
    """
    if body.spark_conf:
        caller.check(Role.ADMIN, "spark_conf")
    served = served_instance(request)
    _check_files(served, body.files)
    submit: Callable[..., str] = served.instance.jobs.submit_ingest
    if body.kind == "bulk-import":
        submit = partial(
            served.instance.jobs.submit_bulk_import,
            queue=body.queue or QueueName.BULK_IMPORT,
            spark_conf=body.spark_conf,
        )
    elif body.queue is not None or body.spark_conf:
        raise BadRequest("queue and spark_conf are for jobs of the kind bulk-import")
    given = submit(
        table,
        body.files,
        body.job_id,
        csv=_csv_options(body),
        upsert=body.upsert,
        if_unchanged_since=if_unchanged_since,
    )
    return json_answer({"job_id": given}, 202)


@router.post(
    "/tables/{table:segment}/deletions",
    status_code=202,
    dependencies=[WRITE],
    responses=answers({"job_id": "erase-17"}, 202),
)
def submit_deletion(
    table: str,
    body: Deletion,
    request: Request,
    if_unchanged_since: JobUnchangedSinceParameter = None,
) -> Response:
    """Ask for rows to be deleted by a worker of ingest jobs (`sleeper serve`).

    The rows are named as for `delete`. The worker deletes those that there are when it runs.
    """
    served = served_instance(request)
    check_few(body.keys, body.regions)
    asked = asked_of(served.table(table).schema, body)
    given = served.instance.jobs.submit_delete(
        table, **asked, job_id=body.job_id, if_unchanged_since=if_unchanged_since
    )
    return json_answer({"job_id": given}, 202)


@router.post("/tables/{table:segment}/batcher", status_code=202, dependencies=[WRITE])
def submit_files(table: str, body: SubmittedFilesBody, request: Request) -> Response:
    """Give files to the ingest batcher, which makes jobs of a sensible size of them."""
    served = served_instance(request)
    _check_files(served, body.files)
    served.instance.jobs.submit_files(table, body.files, csv=_csv_options(body), upsert=body.upsert)
    return json_answer({"files": len(body.files)}, 202)


@router.get("/batcher", dependencies=[READ])
def list_submitted_files(
    request: Request,
    *,
    pending: Annotated[bool, Query(description="true for those in no job yet alone.")] = False,
    limit: LimitQuery = 100,
) -> Response:
    """List the files that the batcher knows, newest first."""
    found = served_instance(request).instance.jobs.submitted_files(pending=pending)
    return _listed("files", found, limit)


@router.post("/batcher/retry", dependencies=[ADMIN], responses=answers({"jobs": 1, "files": 2}))
def retry_files(body: RetriedJobsBody, request: Request) -> Response:
    """Have jobs of submitted files that were rejected, or failed for good, be sent again."""
    return json_answer(served_instance(request).instance.jobs.retry_files(body.job_ids))


@router.get("/jobs", dependencies=[READ])
def list_jobs(
    request: Request,
    *,
    kind: JobKind = JobKind.INGEST,
    table: Annotated[str | None, Query(description="Those of this table alone.")] = None,
    state: JobState | None = None,
    unfinished: bool = False,
    task_id: Annotated[str | None, Query(description="Those that this worker ran.")] = None,
    since: datetime | None = None,
    until: datetime | None = None,
    limit: LimitQuery = 100,
) -> Response:
    """List jobs, that of the newest event first."""
    found = served_instance(request).instance.jobs.list(
        kind=kind,
        table=table,
        state=state,
        unfinished=unfinished,
        task_id=task_id,
        since=since,
        until=until,
    )
    return _listed("jobs", found, limit)


@router.get("/jobs/{job_id:segment}", dependencies=[READ])
def show_job(
    job_id: str,
    request: Request,
    *,
    kind: JobKind = JobKind.INGEST,
    table: Annotated[str | None, Query(description="Where two tables have such a job.")] = None,
) -> Response:
    """Show what became of a job."""
    return json_answer(served_instance(request).instance.jobs.job(job_id, kind=kind, table=table))


@router.post(
    "/tables/{table:segment}/queries",
    status_code=202,
    dependencies=[WRITE],
    responses=answers({"query_id": "flights-of-N14228"}, 202),
)
def submit_query(table: str, body: QueryJobBody, request: Request) -> Response:
    """Ask for rows by keys, ranges or prefix, which a worker (`sleeper serve`) writes to a file."""
    served = served_instance(request)
    asked = asked_of(served.table(table).schema, body)
    jobs = served.instance.jobs
    query_id = jobs.submit_query(table, **asked, columns=body.columns, query_id=body.query_id)
    return json_answer({"query_id": query_id}, 202)


@router.post(
    "/tables/{table:segment}/exports",
    status_code=202,
    dependencies=[WRITE],
    responses=answers({"export_id": "flights-2013"}, 202),
)
def submit_export(table: str, body: ExportJobBody, request: Request) -> Response:
    """Ask for a table to be written to Parquet files by a worker (`sleeper serve`)."""
    jobs = served_instance(request).instance.jobs
    return json_answer({"export_id": jobs.submit_export(table, body.export_id)}, 202)


@router.get("/queries", dependencies=[READ])
def list_queries(
    request: Request,
    *,
    kind: AnswerKind = JobKind.QUERY,
    table: Annotated[str | None, Query(description="Those of this table alone.")] = None,
    state: QueryState | None = None,
    limit: LimitQuery = 100,
) -> Response:
    """List queries that workers run, or exports, that of the newest event first."""
    jobs = served_instance(request).instance.jobs
    found = jobs.queries(kind=kind, table=table, state=state)
    return _listed("queries", found, limit)


@router.get("/queries/{query_id:segment}", dependencies=[READ])
def show_query(
    query_id: str,
    request: Request,
    *,
    kind: AnswerKind = JobKind.QUERY,
    table: TableOfQuery = None,
) -> Response:
    """Show what became of a query, or of an export."""
    jobs = served_instance(request).instance.jobs
    return json_answer(jobs.query(query_id, kind=kind, table=table))


@router.get("/queries/{query_id:segment}/rows", dependencies=[READ], responses=ROWS_ANSWERS)
def rows_of_query(
    query_id: str,
    request: Request,
    *,
    table: TableOfQuery = None,
    form: Annotated[
        AnswerFormat | None, Query(alias="format", description="Overrides the header `Accept`.")
    ] = None,
) -> Response:
    """Read the rows that a worker wrote to the file of a query."""
    served = served_instance(request)
    wanted = answer_format(form, request.headers.get("accept"))
    rows = served.instance.jobs.query_rows(query_id, table=table)
    return rows_answer(rows, wanted, served.limits).response()


@router.get("/tasks", dependencies=[READ])
def list_tasks(
    request: Request,
    *,
    kind: Annotated[JobKind | None, Query(description="Workers of these jobs alone.")] = None,
    unfinished: Annotated[
        bool, Query(description="true for those that have not said that they ended.")
    ] = False,
    limit: LimitQuery = 100,
) -> Response:
    """List worker processes that ran jobs, the newest first."""
    found = served_instance(request).instance.jobs.tasks(kind, unfinished=unfinished)
    return _listed("tasks", found, limit)


@router.get("/queues", dependencies=[READ])
def list_queues(request: Request) -> Response:
    """Show how many messages each queue has."""
    return json_answer({"queues": served_instance(request).instance.jobs.queue_depths()})


@router.get("/queues/{queue}/dead-letters", dependencies=[READ])
def list_dead_letters(queue: QueueName, request: Request, *, limit: LimitQuery = 100) -> Response:
    """List messages of a queue that are delivered no more, oldest first."""
    found = served_instance(request).instance.jobs.dead_letters(queue, limit=limit)
    return json_answer({"dead_letters": [*found]})


@router.post("/queues/{queue}/redrive", dependencies=[ADMIN], responses=answers({"messages": 2}))
def redrive(queue: QueueName, body: MessagesBody, request: Request) -> Response:
    """Put dead letters back into their queue: those that are named, or all."""
    count = served_instance(request).instance.jobs.redrive(queue, body.message_ids)
    return json_answer({"messages": count})


def _listed(name: str, found: Iterator[Any], limit: int) -> Response:
    """Answer with the first of what is found, and whether there are more."""
    first = [*islice(found, limit)]
    return json_answer({name: first, "more": next(found, None) is not None})


def _csv_options(body: SubmittedFilesBody) -> CsvOptions | None:
    return None if body.csv is None else body.csv.options()


def _check_files(served: ServedInstance, files: list[str]) -> None:
    """Refuse files that whoever started the server did not mean: it has other rights than clients.

    Raises:
        BadRequest: there is one.
    """
    properties, folder = served.instance.properties, served.input_folder
    listed = properties.jobs.input_places
    if listed is None:
        buckets = properties.cloud.source_buckets or ()
        listed = (served.instance.url, *(f"s3://{bucket}" for bucket in buckets))
    remote = InputPlaces(listed)
    local = InputPlaces((str(folder.resolve()),) if folder is not None else ())
    for file in files:
        if "\0" in file or any("\ud800" <= each <= "\udfff" for each in file):
            raise BadRequest(f"{file!r:.500} cannot be the name of a file")
        if file.startswith(_BUCKETS):
            if refusals := remote.refusals([file]):
                raise BadRequest(refusals[0])
        elif local.refusals([file]):
            where = "in buckets (s3://)" if folder is None else f"in buckets, or below {folder}"
            raise BadRequest(
                f"{file!r:.500}: files of jobs must be {where}; upload rows of others to "
                "/sleeper/tables/TABLE/rows, or start the server with --input-folder"
            )
