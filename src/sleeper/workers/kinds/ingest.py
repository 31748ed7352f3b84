"""Jobs of the ingest queue: files that a message names become rows of a table, or rows go."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from sleeper.errors import JobInvalid
from sleeper.instance.instance import Instance
from sleeper.jobs.deletions import deletion_arguments
from sleeper.jobs.instance_jobs import InstanceJobs
from sleeper.model.csv_options import CsvOptions
from sleeper.model.formats.ingest_job import (
    REASON,
    IngestJob,
    ingest_job_failures,
    read_ingest_job,
)
from sleeper.model.jobs.events import hash_of_paths
from sleeper.model.jobs.kinds import JobKind, QueueName
from sleeper.model.jobs.messages import ReceivedMessage
from sleeper.ports.ids import given_job_id
from sleeper.state.table_state import JobRecord
from sleeper.tables.ingest import IngestResult
from sleeper.workers.job import Job, JobOutcome, JobReader, MessageRejected, RunContext


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestWork(Job):
    """An ingest job that can be run.

    Attributes:
        jobs: Where its table is found.
        paths: Its files.
        csv: How its files of CSV are written.
        upsert: Whether rows of the same row keys are replaced.
        if_unchanged_since: The transaction that the job relies on; None for none.
        before: What the table's log said of the job when its message was read.
    """

    jobs: InstanceJobs
    paths: tuple[str, ...]
    csv: CsvOptions | None
    upsert: bool
    if_unchanged_since: int | None
    before: JobRecord | None

    def done_before(self) -> JobOutcome | None:
        """Return what the table's log said of the job when its message was read."""
        return JobOutcome.of_record(self.before)

    def run(self, run: RunContext) -> JobOutcome:
        """Ingest the files in one commit, here or by the committer (rule ING-13).

        An upsert is committed here in any case: what it deletes and writes anew depends on the
        table at its commit (rule ING-18). So is what relies on a version (rule DEL-5). Columns
        that the table does not have are left out, as by upstream.
        """
        table = self.jobs.tables.table(self.table_id)
        add: Callable[..., IngestResult] = table.upsert if self.upsert else table.ingest
        is_plain = not self.upsert and self.if_unchanged_since is None
        if table.properties.async_commits.ingest and is_plain:
            send = partial(self.jobs.send_commit, table, task_id=run.task_id, run_id=run.run_id)
            add = partial(table.ingest, send_commit=send)
        result = add(
            list(self.paths),
            self.job_id,
            csv=self.csv,
            ignore_extra_columns=True,
            progress=lambda done, total: run.check(),
            if_unchanged_since=self.if_unchanged_since,
        )
        return JobOutcome(
            rows_read=result.rows_read,
            rows_written=result.rows_written,
            files=len({reference.filename for reference in result.files}),
            transaction=result.transaction if result.is_committed else None,
            commit_s=table.last_commit_s if result.is_committed else None,
            is_committed=result.is_committed,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteWork(Job):
    """A job that deletes rows (rule DEL-6). It is tracked as an ingest: its id names the work.

    Attributes:
        jobs: Where its table is found.
        asked: Which rows, as the message has it.
        if_unchanged_since: The transaction that the job relies on; None for none.
        before: What the table's log said of the job when its message was read.
    """

    jobs: InstanceJobs
    asked: Mapping[str, Any]
    if_unchanged_since: int | None
    before: JobRecord | None

    def done_before(self) -> JobOutcome | None:
        """Return what the table's log said of the job when its message was read."""
        return JobOutcome.of_record(self.before)

    def run(self, run: RunContext) -> JobOutcome:
        """Delete the rows in one commit, which is made here in any case."""
        table = self.jobs.tables.table(self.table_id)
        asked = deletion_arguments(table.schema, self.asked)
        done = table.delete(
            **asked,
            job_id=self.job_id,
            reason=self.asked.get(REASON),
            if_unchanged_since=self.if_unchanged_since,
        )
        return JobOutcome(transaction=done.transaction, commit_s=table.last_commit_s)


class IngestReader(JobReader):
    """Reads messages of the ingest queue (rules ING-9 to ING-11, ING-18, DEL-5 and DEL-6).

    Args:
        jobs: The jobs of the instance whose tables are ingested into.
    """

    kind = JobKind.INGEST

    def __init__(self, jobs: InstanceJobs) -> None:
        super().__init__(jobs.tables)
        self._jobs = jobs

    def read(self, message: ReceivedMessage) -> IngestWork | DeleteWork:
        """Return the job in a message. Without an id it gets the message's, so it is done once.

        Raises:
            MessageRejected: it is none, or cannot be run, for all the reasons that it names.
            StorageFailed: the instance or the input cannot be looked at now.
        """
        try:
            job = self._jobs.tables.located(read_ingest_job(message.body))
        except JobInvalid as invalid:
            raise MessageRejected(message.message_id, invalid.failures) from None
        return self._checked(job, given_job_id(job.id) or message.message_id)

    def _checked(self, job: IngestJob, job_id: str) -> IngestWork | DeleteWork:
        checked = self._jobs.tables.checked(job, ingest_job_failures, job_id=job_id)
        if checked.failures:
            raise MessageRejected(job_id, checked.failures, table_id=checked.table_id)
        if job.delete is not None:
            return DeleteWork(
                job_id=job_id,
                table_id=checked.table_id,
                input_hash=hash_of_paths([json.dumps(job.delete, sort_keys=True)]),
                jobs=self._jobs,
                asked=job.delete,
                if_unchanged_since=job.if_unchanged_since,
                before=checked.before,
            )
        return IngestWork(
            job_id=job_id,
            table_id=checked.table_id,
            input_files=len(job.paths),
            input_hash=hash_of_paths(job.paths),
            jobs=self._jobs,
            paths=tuple(job.paths),
            csv=job.csv_options,
            upsert=job.upsert,
            if_unchanged_since=job.if_unchanged_since,
            before=checked.before,
        )


def open_reader(instance: Instance, queue: QueueName) -> IngestReader:
    """Return what reads the messages of the queue."""
    return IngestReader(instance.jobs)
