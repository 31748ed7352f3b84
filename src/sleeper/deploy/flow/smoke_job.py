"""A job that shows whether what was deployed works: rows through a queue, and read again."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from sleeper.errors import DeploymentFailed, SleeperError
from sleeper.instance.instance import Instance
from sleeper.model.jobs.kinds import JobKind, QueueName
from sleeper.model.jobs.query_statuses import QueryStatus
from sleeper.model.jobs.statuses import JobState, JobStatus
from sleeper.model.known_properties.deployment import DATA_BUCKET, REGION
from sleeper.storage.aws.clients import aws_client, aws_failure, vendor_errors

logger = logging.getLogger(__name__)

TABLE: Final = "sleeper-smoke-test"
"""The name of the table, which is there while the job runs."""

_SCHEMA: Final = pa.schema([("key", pa.string()), ("value", pa.int64())])
_ROWS: Final = [{"key": "a", "value": 1}, {"key": "b", "value": 2}]
_LOOK_S: Final = 5.0
_LOOKS_MAX: Final = 120
"""Ten minutes: a worker is started each minute, and takes one or two to start."""
_FILE: Final = "smoke-test/rows.parquet"
_FIRST_STEP: Final = {
    "ingest": "the lambda that starts workers, or the worker itself",
    "query": "the lambda of queries",
}


@dataclass(frozen=True, slots=True)
class SmokeJob:
    """What a smoke job needs.

    Attributes:
        instance: The instance.
        has_ingest: Whether workers take jobs from the queue of ingests; else rows are added here.
        has_query: Whether queries are taken from their queue; else they are read here.
        log_groups: By `ingest` and `query`, the names of log groups to read where one fails.
        rest: Waits for so many seconds.
        report: Called with each step.
        looks_max: How often the state of a job is looked at, every five seconds.
    """

    instance: Instance
    has_ingest: bool
    has_query: bool
    log_groups: Mapping[str, tuple[str, ...]]
    rest: Callable[[float], object]
    report: Callable[[str], object]
    looks_max: int = _LOOKS_MAX

    def run(self) -> None:
        """Make a table, add rows, read them, and delete the table.

        Raises:
            DeploymentFailed: something of it did not work in time: what, and where to look.
        """
        self._clean()  # an interrupted run may have left the table
        file = self._write_file()
        table = self.instance.create_table(TABLE, _SCHEMA, row_keys=["key"])
        try:
            if self.has_ingest:
                self._ingest(file)
            else:
                table.ingest(pa.Table.from_pylist(_ROWS, schema=_SCHEMA))
            found = self.instance.table(TABLE).query().to_pylist()
            if found != _ROWS:
                raise DeploymentFailed(f"table {TABLE} has {found}, but {_ROWS} were added")
            if self.has_query:
                self._query()
            self.report(f"{len(_ROWS)} rows were added and read again")
        finally:
            self._clean()

    def _ingest(self, file: str) -> None:
        jobs = self.instance.jobs
        self.report("sending an ingest to its queue; a worker takes one to three minutes to start")
        job_id = jobs.submit_ingest(TABLE, file)
        status = jobs.wait(job_id, rest=self._resting())
        if status.state is not JobState.FINISHED:
            raise self._failed(QueueName.INGEST, "ingest", _ingest_text(status))

    def _query(self) -> None:
        jobs, resting = self.instance.jobs, self._resting()
        self.report("sending a query to its queue")
        query_id = jobs.submit_query(TABLE, key="a")
        status = jobs.query(query_id)
        while status.is_unfinished and resting():
            status = jobs.query(query_id)
        if status.rows != 1:
            raise self._failed(QueueName.QUERY, "query", _query_text(status))

    def _resting(self) -> Callable[[], bool]:
        """Return a function that rests, and returns False when that was enough."""
        left = self.looks_max

        def rest() -> bool:
            nonlocal left
            left -= 1
            if left < 0:
                return False
            self.rest(_LOOK_S)
            return True

        return rest

    def _failed(self, queue: QueueName, kind: str, text: str) -> DeploymentFailed:
        depth = self.instance.jobs.queue_depths()[queue]
        groups = ", ".join(self.log_groups.get(kind, ())) or f"that of {_FIRST_STEP[kind]}"
        return DeploymentFailed(
            f"everything is deployed, but the smoke job failed: {text}. Its queue is `{queue}` "
            f"({depth.ready} waiting, {depth.hidden} in work, {depth.dead} dead letters: "
            f"sleeper queue list --instance {self.instance.url}). Read the log group: {groups}. "
            f"Table {TABLE} was deleted. Run the same command to try again, or "
            "with --no-smoke-test to leave it out."
        )

    def _write_file(self) -> str:
        """Write the rows to the data bucket; return the URL of the file."""
        body = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(_ROWS, schema=_SCHEMA), body)
        bucket = self.instance.properties.text(DATA_BUCKET) or ""
        with self._translated(bucket):
            self._s3().put_object(Bucket=bucket, Key=_FILE, Body=body.getvalue())
        return f"s3://{bucket}/{_FILE}"

    def _s3(self) -> Any:
        return aws_client("s3", self.instance.properties.text(REGION))

    @contextmanager
    def _translated(self, bucket: str) -> Iterator[None]:
        try:
            yield
        except vendor_errors() as error:
            permission = "s3:PutObject and DeleteObject"
            raise aws_failure(
                error, "write to", f"bucket {bucket}", writes=True, permission=permission
            ) from error

    def _clean(self) -> None:
        """Delete the table and its file, if they are there."""
        bucket = self.instance.properties.text(DATA_BUCKET) or ""
        try:
            if TABLE in self.instance:
                self.instance.delete_table(TABLE)
            with self._translated(bucket):
                self._s3().delete_object(Bucket=bucket, Key=_FILE)
        except SleeperError as error:
            logger.warning("table %s of the smoke job, or its file, stays: %s", TABLE, error)


def _ingest_text(status: JobStatus) -> str:
    if status.state is JobState.ACCEPTED and status.furthest_run is None:
        return "no worker took the ingest in time"
    reasons = f" ({'; '.join(status.reasons)})" if status.reasons else ""
    return f"the ingest is {status.state}{reasons}"


def _query_text(status: QueryStatus) -> str:
    return f"the {JobKind.QUERY} is {status.state} with {status.rows} rows"
