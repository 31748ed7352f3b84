"""`instance.jobs`: jobs are submitted here, followed to their end, and found again."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime

from sleeper.errors import BadRequest, JobInvalid, JobNotFound, TableNotFound
from sleeper.jobs.event_recorder import EventRecorder
from sleeper.jobs.job_tables import JobTables, absolute
from sleeper.model.formats.bulk_import_job import (
    BulkImportJob,
    bulk_import_job_failures,
    write_bulk_import_job,
)
from sleeper.model.formats.ingest_job import IngestJob, ingest_job_failures, write_ingest_job
from sleeper.model.jobs.events import JobEvent, JobEventType, JobFilter, JobKind
from sleeper.model.jobs.messages import (
    BULK_IMPORT_QUEUES,
    DeadLetter,
    NewMessage,
    QueueDepth,
    QueueName,
)
from sleeper.model.jobs.states import JobState
from sleeper.model.jobs.statuses import JobStatus, job_status
from sleeper.model.jobs.tasks import TaskStatus, task_status
from sleeper.ports.ids import NewId, given_job_id
from sleeper.ports.job_stores import JobStores

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


class InstanceJobs:
    """The jobs of an instance: its queues, and what became of what was sent to them.

    Args:
        stores: Where queues and events are.
        tables: Finds tables and input files.
        recorder: Writes events.
        new_id: Makes the ids of jobs.
        url: The instance, for messages.
    """

    def __init__(
        self,
        stores: JobStores,
        tables: JobTables,
        recorder: EventRecorder,
        *,
        new_id: NewId,
        url: str,
    ) -> None:
        self.stores = stores
        self.tables = tables
        self.recorder = recorder
        self.new_id = new_id
        self._url = url

    def submit_ingest(self, table: str, files: Paths, job_id: str | None = None) -> str:
        """Ask for files to be ingested by a worker, and return the job's id.

        Args:
            table: The table's name.
            files: Parquet files or folders of them, as paths or URLs. Paths of this machine
                become absolute: a worker has another working folder.
            job_id: Names the work: a job that was committed before adds nothing. Where it is
                None or blank, one is made.

        Raises:
            JobInvalid: every reason why the job cannot be run; nothing was sent.
            StorageFailed: the queue cannot be reached; send the job again with the same id.

        Source: rules ING-9 to ING-11.
        """
        given = given_job_id(job_id) or self.new_id()
        job = IngestJob(id=given, table_name=table, files=_paths(files))
        record = self.tables.find(table_id=None, table_name=table)
        failures = ingest_job_failures(
            job, table_found=record is not None, missing_paths=self.tables.missing(job.paths)
        )
        if failures or record is None:
            raise JobInvalid(tuple(failures))
        self._send(QueueName.INGEST, write_ingest_job(job))
        self._accepted(JobKind.INGEST, record.table_id, given, len(job.paths))
        return given

    def submit_bulk_import(
        self,
        table: str,
        files: Paths,
        job_id: str | None = None,
        *,
        queue: QueueName | str = QueueName.BULK_IMPORT,
        spark_conf: Mapping[str, str] | None = None,
    ) -> str:
        """Ask for many files to be imported at once, and return the job's id.

        Args:
            table: The table's name.
            files: As for `submit_ingest`.
            job_id: As for `submit_ingest`; lower case letters, digits and dashes, 63 at most.
            queue: One of the bulk import queues: it names the platform. `bulk-import` runs on
                the machine of the worker that takes it.
            spark_conf: Settings of Spark for this job alone.

        Raises:
            JobInvalid: every reason why the job cannot be run; nothing was sent.
            StorageFailed: the queue cannot be reached; send the job again with the same id.

        Source: rules BLK-1, BLK-2 and BLK-4.
        """
        job = BulkImportJob(
            id=given_job_id(job_id) or self.new_id(),
            table_name=table,
            files=_paths(files),
            spark_conf=spark_conf or {},
        )
        record = self.tables.find(table_id=None, table_name=table)
        failures = bulk_import_job_failures(
            job, table_found=record is not None, missing_paths=self.tables.missing(job.paths)
        )
        name = queue_name(queue)
        if name not in BULK_IMPORT_QUEUES:
            failures.append(f"{name} is no queue for bulk imports")
        if failures or record is None:
            raise JobInvalid(tuple(failures))
        self._send(name, write_bulk_import_job(job))
        self._accepted(JobKind.INGEST, record.table_id, job.id or "", len(job.paths))
        return job.id or ""

    def send(self, queue: QueueName | str, message: str) -> None:
        """Send a message as it is. The worker that takes it says what is wrong with it.

        Raises:
            BadRequest: there is no such queue, or the message is too large.
            StorageFailed: the queue cannot be reached.
        """
        self._send(queue_name(queue), message)

    def job(
        self, job_id: str, *, kind: JobKind | str = JobKind.INGEST, table: str | None = None
    ) -> JobStatus:
        """Return what became of a job.

        An ingest that a table's log has is finished, whatever the tracker missed.

        Args:
            job_id: The job.
            kind: What it does: ingest (bulk imports included), compaction, query or export.
            table: Its table, where two tables have a job of this id.

        Raises:
            JobNotFound: nothing is known of it: it was not sent, or its events have expired.
            BadRequest: two tables have such a job, and `table` names none.
            StorageFailed: the tracker cannot be reached.
        """
        wanted = JobKind(kind)
        table_id = None if table is None else self._table_id(table)
        by_table: dict[str, list[JobEvent]] = {}
        for event in self.stores.tracker.events_of_job(wanted, job_id):
            if table_id is None or event.table_id == table_id:
                by_table.setdefault(event.table_id, []).append(event)
        if not by_table:
            found = self._unknown_to_tracker(wanted, job_id, table_id)
            if found is not None:
                return found
            raise JobNotFound(
                f"nothing is known of {wanted} job {job_id!r} in {self._url}: it was not sent, or "
                "what happened to it was long ago"
            )
        if len(by_table) > 1:
            raise BadRequest(
                f"tables {', '.join(sorted(by_table))} each have a job {job_id!r}: name the table"
            )
        ((_, events),) = by_table.items()
        return self._healed(job_status(events))

    def list(
        self,
        *,
        kind: JobKind | str = JobKind.INGEST,
        table: str | None = None,
        state: JobState | str | None = None,
        task_id: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Iterator[JobStatus]:
        """Yield jobs, that of the newest event first.

        Args:
            kind: What they do: ingest (bulk imports included), compaction, query or export.
            table: Their table's name; all without it.
            state: How far they are, such as `FAILED`; any without it.
            task_id: A worker that ran them.
            since: Something happened to them at this time or later (aware).
            until: Something happened to them before this time (aware).

        Raises:
            TableNotFound: there is no such table.
            StorageFailed: the tracker cannot be reached.
        """
        wanted = JobFilter(
            kind=JobKind(kind),
            table_id=None if table is None else self._table_id(table),
            task_id=task_id,
            since=since,
            until=until,
        )
        wanted_state = None if state is None else JobState(state)
        for events in self.stores.tracker.jobs(wanted):
            status = self._healed(job_status(events))
            if wanted_state is None or status.state == wanted_state:
                yield status

    def tasks(self, kind: JobKind | str | None = None) -> Iterator[TaskStatus]:
        """Yield worker processes that ran jobs, the newest first."""
        wanted = None if kind is None else JobKind(kind)
        return map(task_status, self.stores.tracker.tasks(wanted))

    def queue_depths(self) -> Mapping[QueueName, QueueDepth]:
        """Return how many messages each queue has."""
        return {name: self.stores.queue(name).depth() for name in QueueName}

    def dead_letters(self, queue: QueueName | str, *, limit: int = 100) -> Sequence[DeadLetter]:
        """Return messages of a queue that are delivered no more, oldest first."""
        return self.stores.queue(queue_name(queue)).dead_letters(limit)

    def redrive(self, queue: QueueName | str, message_ids: Sequence[str] | None = None) -> int:
        """Put dead letters back into their queue, all or those named; return how many."""
        return self.stores.queue(queue_name(queue)).redrive(message_ids)

    def delete_dead_letters(
        self, queue: QueueName | str, message_ids: Sequence[str] | None = None
    ) -> int:
        """Delete dead letters for ever, all or those named; return how many."""
        return self.stores.queue(queue_name(queue)).delete_dead_letters(message_ids)

    def wait(
        self,
        job_id: str,
        *,
        kind: JobKind | str = JobKind.INGEST,
        rest: Callable[[], bool],
    ) -> JobStatus:
        """Look at a job again and again until it has ended or `rest` returns False."""
        while True:
            status = self.job(job_id, kind=kind)
            if status.is_over or not rest():
                return status

    def _send(self, queue: QueueName, body: str) -> None:
        self.stores.queue(queue).send([NewMessage(body=body)])

    def _accepted(self, kind: JobKind, table_id: str, job_id: str, input_files: int) -> None:
        event = JobEvent(
            kind=kind,
            table_id=table_id,
            job_id=job_id,
            type=JobEventType.ACCEPTED,
            at=self.recorder.now(),
            input_files=input_files,
        )
        self.recorder.record(event)

    def _healed(self, status: JobStatus) -> JobStatus:
        """Return the status of a job as the table's log has it, and tell the tracker."""
        if status.kind is not JobKind.INGEST or status.state in (
            JobState.FINISHED,
            JobState.REJECTED,
        ):
            return status
        committed = self._committed_event(status.table_id, status.job_id)
        if committed is None:
            return status
        self.recorder.record(committed)
        events = self.stores.tracker.events_of_job(JobKind.INGEST, status.job_id)
        known = [event for event in events if event.table_id == status.table_id]
        return job_status([*known, committed])

    def _unknown_to_tracker(
        self, kind: JobKind, job_id: str, table_id: str | None
    ) -> JobStatus | None:
        """Return the status of an ingest that a log has and the tracker does not."""
        if kind is not JobKind.INGEST:
            return None
        ids = [record.table_id for record in self.tables.all()]
        for each in ids if table_id is None else [table_id]:
            committed = self._committed_event(each, job_id)
            if committed is not None:
                return job_status([committed])
        return None

    def _committed_event(self, table_id: str, job_id: str) -> JobEvent | None:
        record = self.tables.committed(table_id, job_id)
        if record is None:
            return None
        return JobEvent(
            kind=JobKind.INGEST,
            table_id=table_id,
            job_id=job_id,
            type=JobEventType.FINISHED,
            at=record.at,
            files=record.files,
            rows_read=record.rows_read,
            rows_written=record.rows_written,
            transaction=record.number,
        )

    def _table_id(self, name: str) -> str:
        record = self.tables.find(table_id=None, table_name=name)
        if record is None:
            raise TableNotFound(f"no table {name!r} in {self._url}")
        return record.table_id


def queue_name(name: QueueName | str) -> QueueName:
    """Return a queue by its name.

    Raises:
        BadRequest: there is none of this name.
    """
    try:
        return QueueName(name)
    except ValueError:
        raise BadRequest(
            f"there is no queue {name!r}; the queues are {', '.join(QueueName)}"
        ) from None


def _paths(files: Paths) -> tuple[str, ...]:
    given = [files] if isinstance(files, str | os.PathLike) else files
    return tuple(map(absolute, given))
