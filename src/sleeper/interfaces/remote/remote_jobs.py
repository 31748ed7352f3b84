"""The jobs of an instance, by its REST server."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, Never
from urllib.parse import quote

from sleeper.errors import BadRequest
from sleeper.interfaces.remote.http_client import HttpClient, result_of
from sleeper.interfaces.remote.remote_table import path_of_table
from sleeper.jobs.instance_jobs import InstanceJobs
from sleeper.model.csv_options import CsvOptions
from sleeper.model.jobs.kinds import JobKind, QueueName
from sleeper.model.jobs.messages import DeadLetter, QueueDepth
from sleeper.model.jobs.statuses import JobStatus
from sleeper.model.jobs.submitted_files import RetriedFiles, SubmittedFile

Paths = str | Sequence[str]


class RemoteJobs:
    """The jobs of an instance: submit them and follow them, by the methods of `InstanceJobs`."""

    def __init__(self, client: HttpClient) -> None:
        self._client = client

    def submit_ingest(
        self,
        table: str,
        files: Paths,
        job_id: str | None = None,
        *,
        csv: CsvOptions | Mapping[str, Any] | None = None,
    ) -> str:
        """Ask for files to be ingested by a worker, and return the job's id."""
        return self._submit(table, files, job_id, "ingest", csv)

    def submit_bulk_import(
        self,
        table: str,
        files: Paths,
        job_id: str | None = None,
        *,
        csv: CsvOptions | Mapping[str, Any] | None = None,
    ) -> str:
        """Ask for many files to be imported at once, and return the job's id."""
        return self._submit(table, files, job_id, "bulk-import", csv)

    def submit_files(
        self,
        table: str,
        files: Paths,
        *,
        csv: CsvOptions | Mapping[str, Any] | None = None,
    ) -> None:
        """Give files to the ingest batcher."""
        body: dict[str, Any] = {"files": _list(files), **_csv(csv)}
        self._client.send("POST", f"{path_of_table(table)}/batcher", body)

    def submitted_files(self, *, pending: bool = False) -> Iterator[SubmittedFile]:
        """Yield the files that the batcher knows, newest first; at most 1000."""
        found = self._client.get("/sleeper/batcher", pending=pending, limit=1000)["files"]
        return (result_of(SubmittedFile, each) for each in found)

    def retry_files(self, job_ids: Sequence[str] | None = None) -> RetriedFiles:
        """Have jobs of submitted files that were rejected, or failed for good, be sent again."""
        body = {"job_ids": None if job_ids is None else [*job_ids]}
        return result_of(RetriedFiles, self._client.send("POST", "/sleeper/batcher/retry", body))

    def job(
        self, job_id: str, *, kind: JobKind | str = JobKind.INGEST, table: str | None = None
    ) -> JobStatus:
        """Return the status of a job."""
        path = f"/sleeper/jobs/{quote(job_id, safe='').replace('.', '%2E')}"
        return result_of(JobStatus, self._client.get(path, kind=str(JobKind(kind)), table=table))

    def list(
        self,
        *,
        kind: JobKind | str = JobKind.INGEST,
        table: str | None = None,
        state: str | None = None,
        unfinished: bool = False,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Iterator[JobStatus]:
        """Yield jobs, that of the newest event first; at most 1000."""
        found = self._client.get(
            "/sleeper/jobs",
            kind=str(JobKind(kind)),
            table=table,
            state=None if state is None else str(state),
            unfinished=unfinished,
            since=None if since is None else since.isoformat(),
            until=None if until is None else until.isoformat(),
            limit=1000,
        )
        return (result_of(JobStatus, each) for each in found["jobs"])

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
    ) -> str:
        body: dict[str, Any] = {"files": _list(files), "job_id": job_id, "kind": kind, **_csv(csv)}
        return str(self._client.send("POST", f"{path_of_table(table)}/jobs", body)["job_id"])

    def __getattr__(self, name: str) -> Never:
        if not name.startswith("_") and hasattr(InstanceJobs, name):
            raise BadRequest(
                f"the jobs of a server have no {name!r}: open the instance itself, by its folder "
                "or bucket, as in sleeper.connect('/data/my-instance').jobs"
            )
        raise AttributeError(f"'RemoteJobs' has no attribute {name!r}")


def _list(files: Paths) -> list[str]:
    return [os.fspath(files)] if isinstance(files, str | os.PathLike) else [*map(os.fspath, files)]


def _csv(csv: CsvOptions | Mapping[str, Any] | None) -> dict[str, Any]:
    options = CsvOptions.of(csv)
    return {} if options is None else {"csv": asdict(options)}
