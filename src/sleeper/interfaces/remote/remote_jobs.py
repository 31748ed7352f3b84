"""The jobs of an instance, by its REST server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final, Never
from urllib.parse import quote

from sleeper.engine.rows import Rows
from sleeper.errors import BadRequest
from sleeper.interfaces.remote.http_client import HttpClient, Result, result_of
from sleeper.interfaces.remote.remote_table import (
    RemoteTable,
    answered_rows,
    job_named,
    path_of_table,
    question,
    relied_on,
)
from sleeper.jobs.arguments import (
    Paths,
    answer_kind,
    check_times,
    checked_columns,
    checked_flag,
    checked_paths,
    checked_settings,
    id_text,
    job_kind,
    member,
    queue_name,
)
from sleeper.jobs.instance_jobs import InstanceJobs
from sleeper.model.authors import committing
from sleeper.model.csv_options import CsvOptions
from sleeper.model.jobs.kinds import JobKind, QueueName
from sleeper.model.jobs.messages import DeadLetter, QueueDepth
from sleeper.model.jobs.query_statuses import QueryState, QueryStatus
from sleeper.model.jobs.statuses import JobState, JobStatus
from sleeper.model.jobs.submitted_files import RetriedFiles, SubmittedFile
from sleeper.model.jobs.tasks import TaskStatus
from sleeper.model.queries import NOT_GIVEN, NotGiven, RegionRequest
from sleeper.ports.ids import given_job_id

_LISTED_MAX: Final = 1_000
"""How many a server lists at once."""


class RemoteJobs:
    """The jobs of an instance: submit them and follow them, by the methods of `InstanceJobs`.

    A list of more than a thousand ends in BadRequest, for a server tells of no more.
    """

    def __init__(self, client: HttpClient) -> None:
        self._client = client

    def submit_ingest(
        self,
        table: str,
        files: Paths,
        job_id: str | None = None,
        *,
        csv: CsvOptions | Mapping[str, Any] | None = None,
        upsert: bool = False,
        if_unchanged_since: int | None = None,
    ) -> str:
        """Ask for files to be ingested by a worker, and return the job's id."""
        how = _replaced(upsert)
        return self._submit(table, files, job_id, "ingest", csv, how, if_unchanged_since)

    def submit_delete(
        self,
        table: str,
        *,
        key: object = NOT_GIVEN,
        keys: Any = NOT_GIVEN,
        range: RegionRequest | NotGiven = NOT_GIVEN,  # noqa: A002 - the field's own word
        regions: Iterable[RegionRequest] | NotGiven = NOT_GIVEN,
        prefix: Mapping[str, str | bytes] | NotGiven = NOT_GIVEN,
        where: str | None = None,
        job_id: str | None = None,
        reason: str | None = None,
        if_unchanged_since: int | None = None,
    ) -> str:
        """Ask for rows to be deleted by a worker, and return the job's id."""
        schema = RemoteTable(self._client, table).schema
        body = question(
            schema, key=key, keys=keys, range=range, regions=regions, prefix=prefix, where=where
        )
        with committing(reason=reason):
            path = f"{path_of_table(table)}/deletions"
            body |= job_named(job_id)
            told = self._client.send("POST", path, body, **relied_on(if_unchanged_since))
            return str(told["job_id"])

    def submit_bulk_import(
        self,
        table: str,
        files: Paths,
        job_id: str | None = None,
        *,
        queue: QueueName | str = QueueName.BULK_IMPORT,
        spark_conf: Mapping[str, str] | None = None,
        csv: CsvOptions | Mapping[str, Any] | None = None,
        upsert: bool = False,
        if_unchanged_since: int | None = None,
    ) -> str:
        """Ask for many files to be imported at once, and return the job's id.

        Settings of Spark need a token of the role admin.
        """
        settings = checked_settings(spark_conf, "spark_conf")
        how = {"queue": queue_name(queue)} | ({"spark_conf": settings} if settings else {})
        how |= _replaced(upsert)
        return self._submit(table, files, job_id, "bulk-import", csv, how, if_unchanged_since)

    def submit_files(
        self,
        table: str,
        files: Paths,
        *,
        csv: CsvOptions | Mapping[str, Any] | None = None,
        upsert: bool = False,
    ) -> None:
        """Give files to the ingest batcher."""
        body: dict[str, Any] = {"files": [*checked_paths(files)], **_csv(csv), **_replaced(upsert)}
        self._client.send("POST", f"{path_of_table(table)}/batcher", body)

    def submitted_files(self, *, pending: bool = False) -> Iterator[SubmittedFile]:
        """Yield the files that the batcher knows, newest first."""
        found = self._client.get("/sleeper/batcher", pending=pending, limit=_LISTED_MAX)
        return _all_of(SubmittedFile, found, "files")

    def retry_files(self, job_ids: Sequence[str] | None = None) -> RetriedFiles:
        """Have jobs of submitted files that were rejected, or failed for good, be sent again."""
        body = {"job_ids": None if job_ids is None else [*job_ids]}
        return result_of(RetriedFiles, self._client.send("POST", "/sleeper/batcher/retry", body))

    def job(
        self, job_id: str, *, kind: JobKind | str = JobKind.INGEST, table: str | None = None
    ) -> JobStatus:
        """Return the status of a job."""
        path = f"/sleeper/jobs/{_segment(id_text(job_id, 'job_id'))}"
        return result_of(JobStatus, self._client.get(path, kind=job_kind(kind), table=table))

    def list(
        self,
        *,
        kind: JobKind | str = JobKind.INGEST,
        table: str | None = None,
        state: JobState | str | None = None,
        unfinished: bool = False,
        task_id: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Iterator[JobStatus]:
        """Yield jobs, that of the newest event first."""
        check_times(since=since, until=until)
        found = self._client.get(
            "/sleeper/jobs",
            kind=job_kind(kind),
            table=table,
            state=None if state is None else member(JobState, state, "state"),
            unfinished=unfinished,
            task_id=task_id,
            since=None if since is None else since.isoformat(),
            until=None if until is None else until.isoformat(),
            limit=_LISTED_MAX,
        )
        return _all_of(JobStatus, found, "jobs")

    def tasks(
        self, kind: JobKind | str | None = None, *, unfinished: bool = False
    ) -> Iterator[TaskStatus]:
        """Yield worker processes that ran jobs, the newest first."""
        wanted = None if kind is None else job_kind(kind)
        found = self._client.get(
            "/sleeper/tasks", kind=wanted, unfinished=unfinished, limit=_LISTED_MAX
        )
        return _all_of(TaskStatus, found, "tasks")

    def wait(
        self,
        job_id: str,
        *,
        kind: JobKind | str = JobKind.INGEST,
        table: str | None = None,
        rest: Callable[[], bool],
    ) -> JobStatus:
        """Look at a job again and again until it has ended or `rest` returns False."""
        while True:
            status = self.job(job_id, kind=kind, table=table)
            if status.is_over or not rest():
                return status

    def submit_query(
        self,
        table: str,
        *,
        key: object = NOT_GIVEN,
        keys: Any = NOT_GIVEN,
        range: RegionRequest | NotGiven = NOT_GIVEN,  # noqa: A002 - the field's own word
        regions: Iterable[RegionRequest] | NotGiven = NOT_GIVEN,
        prefix: Mapping[str, str | bytes] | NotGiven = NOT_GIVEN,
        columns: Sequence[str] | None = None,
        query_id: str | None = None,
    ) -> str:
        """Ask for rows, which a worker writes to a file; return the query's id."""
        schema = RemoteTable(self._client, table).schema
        body = question(schema, key=key, keys=keys, range=range, regions=regions, prefix=prefix)
        body["query_id"] = given_job_id(query_id, "query_id")
        if (wanted := checked_columns(columns)) is not None:
            body["columns"] = [*wanted]
        found = self._client.send("POST", f"{path_of_table(table)}/queries", body)
        return str(found["query_id"])

    def submit_export(self, table: str, export_id: str | None = None) -> str:
        """Ask for a table to be written to Parquet files, and return the export's id."""
        body = {"export_id": given_job_id(export_id, "export_id")}
        found = self._client.send("POST", f"{path_of_table(table)}/exports", body)
        return str(found["export_id"])

    def query(
        self, query_id: str, *, kind: JobKind | str = JobKind.QUERY, table: str | None = None
    ) -> QueryStatus:
        """Return the status of a query, or of an export."""
        found = self._client.get(_path_of_query(query_id), kind=answer_kind(kind), table=table)
        return result_of(QueryStatus, found)

    def queries(
        self,
        *,
        kind: JobKind | str = JobKind.QUERY,
        table: str | None = None,
        state: QueryState | str | None = None,
    ) -> Iterator[QueryStatus]:
        """Yield queries or exports, that of the newest event first."""
        found = self._client.get(
            "/sleeper/queries",
            kind=answer_kind(kind),
            table=table,
            state=None if state is None else member(QueryState, state, "state"),
            limit=_LISTED_MAX,
        )
        return _all_of(QueryStatus, found, "queries")

    def query_rows(self, query_id: str, *, table: str | None = None) -> Rows:
        """Return the rows that a query wrote to its file in the instance, as a stream."""
        return answered_rows(self._client, f"{_path_of_query(query_id)}/rows", table=table)

    def queue_depths(self) -> Mapping[QueueName, QueueDepth]:
        """Return how many messages each queue has."""
        found: dict[str, Any] = self._client.get("/sleeper/queues")["queues"]
        return {QueueName(name): result_of(QueueDepth, each) for name, each in found.items()}

    def dead_letters(self, queue: QueueName | str, *, limit: int = 100) -> Sequence[DeadLetter]:
        """Return messages of a queue that are delivered no more, oldest first."""
        found = self._client.get(f"/sleeper/queues/{queue}/dead-letters", limit=limit)
        return [result_of(DeadLetter, each) for each in found["dead_letters"]]

    def redrive(self, queue: QueueName | str, message_ids: Sequence[str] | None = None) -> int:
        """Put dead letters back into their queue, all or those named; return how many."""
        body = {"message_ids": None if message_ids is None else [*message_ids]}
        return int(self._client.send("POST", f"/sleeper/queues/{queue}/redrive", body)["messages"])

    def _submit(
        self,
        table: str,
        files: Paths,
        job_id: str | None,
        kind: str,
        csv: CsvOptions | Mapping[str, Any] | None,
        how: Mapping[str, Any],
        if_unchanged_since: int | None,
    ) -> str:
        body: dict[str, Any] = {
            "files": [*checked_paths(files)],
            "job_id": given_job_id(job_id),
            "kind": kind,
            **how,
            **_csv(csv),
        }
        since = relied_on(if_unchanged_since)
        told = self._client.send("POST", f"{path_of_table(table)}/jobs", body, **since)
        return str(told["job_id"])

    def __getattr__(self, name: str) -> Never:
        if not name.startswith("_") and hasattr(InstanceJobs, name):
            raise BadRequest(
                f"the jobs of a server have no {name!r}: open the instance itself, by its folder "
                "or bucket, as in sleeper.connect('/data/my-instance').jobs"
            )
        raise AttributeError(f"'RemoteJobs' has no attribute {name!r}")


def _all_of(kind: type[Result], found: Mapping[str, Any], name: str) -> Iterator[Result]:
    """Yield what was listed.

    Raises:
        BadRequest: it was not all.
    """
    yield from (result_of(kind, each) for each in found[name])
    if found["more"]:
        raise BadRequest(
            f"a server lists {_LISTED_MAX:,} at most, and there are more: take fewer of them, "
            "choose by table, state or time, or open the instance itself, by its folder or bucket"
        )


def _path_of_query(query_id: str) -> str:
    return f"/sleeper/queries/{_segment(id_text(query_id, 'query_id'))}"


def _segment(text: str) -> str:
    """Return a text as a part of a path. Dots are escaped: `..` would be another path."""
    return quote(text, safe="").replace(".", "%2E")


def _csv(csv: CsvOptions | Mapping[str, Any] | None) -> dict[str, Any]:
    options = CsvOptions.of(csv)
    return {} if options is None else {"csv": asdict(options)}


def _replaced(upsert: object) -> dict[str, Any]:
    """Return what a request says of it: nothing where rows are added, as servers before know."""
    return {"upsert": True} if checked_flag(upsert, "upsert") else {}
