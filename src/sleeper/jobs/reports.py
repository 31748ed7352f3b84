"""What became of jobs: the tracker's events and the table's log, joined into one answer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from sleeper.errors import BadRequest, JobInvalid, JobNotFound, StorageFailed
from sleeper.jobs.job_results import used_for_other_table
from sleeper.jobs.jobs_handle import JobsHandle, queue_name
from sleeper.model import paths
from sleeper.model.jobs.events import JobEvent, JobEventType, JobFilter
from sleeper.model.jobs.kinds import JobKind, QueueName
from sleeper.model.jobs.messages import DeadLetter, QueueDepth
from sleeper.model.jobs.query_statuses import QueryState, QueryStatus, query_status
from sleeper.model.jobs.statuses import JobState, JobStatus, job_status
from sleeper.model.jobs.tasks import TaskStatus, task_status
from sleeper.model.jobs.time_windows import UNFINISHED_FOR, TimeWindow, chosen

_log = logging.getLogger(__name__)

_LOST = "its worker was killed: the table has neither claims nor a file of the job"
_FIRST_TIME = datetime(1970, 1, 1, tzinfo=UTC)  # nothing happened before


def job(
    self: JobsHandle, job_id: str, *, kind: JobKind | str = JobKind.INGEST, table: str | None = None
) -> JobStatus:
    """Return the status of a job.

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
    table_id = None if table is None else self.table_id(table)
    by_table: dict[str, list[JobEvent]] = {}
    for event in self.stores.tracker.events_of_job(wanted, job_id):
        if table_id is None or event.table_id == table_id:
            by_table.setdefault(event.table_id, []).append(event)
    if not by_table:
        found = _unknown_to_tracker(self, wanted, job_id, table_id)
        if found is not None:
            return found
        raise JobNotFound(
            f"nothing is known of {wanted} job {job_id!r} in {self.url}: it was not sent, or "
            "what happened to it was long ago"
        )
    if len(by_table) > 1:
        raise BadRequest(
            f"tables {', '.join(sorted(by_table))} each have a job {job_id!r}: name the table"
        )
    ((_, events),) = by_table.items()
    return _healed(self, job_status(events))


def list_jobs(
    self: JobsHandle,
    *,
    kind: JobKind | str = JobKind.INGEST,
    table: str | None = None,
    state: JobState | str | None = None,
    unfinished: bool = False,
    task_id: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> Iterator[JobStatus]:
    """Yield jobs, that of the newest event first.

    Args:
        kind: What they do: ingest (bulk imports included), compaction, query or export.
        table: Their table's name; all without it.
        state: How far they are, such as `FAILED`; any without it.
        unfinished: Only those of which something may still come by itself.
        task_id: A worker that ran them.
        since: They ended at this time or later (aware), or have no end and started at most a day
            before it.
        until: They started before this time (aware).

    Raises:
        BadRequest: a time has no time zone.
        TableNotFound: there is no such table.
        StorageFailed: the tracker cannot be reached.

    Source: rule TRK-7.
    """
    for name, time in (("since", since), ("until", until)):
        if time is not None and time.tzinfo is None:
            raise BadRequest(f"{name}={time} has no time zone: add one, such as tzinfo=UTC")
    seen_since = None if since is None else max(since, _FIRST_TIME) - UNFINISHED_FOR
    wanted = JobFilter(
        kind=JobKind(kind),
        table_id=None if table is None else self.table_id(table),
        task_id=task_id,
        since=seen_since,
        until=until,
    )
    found = self.stores.tracker.jobs(wanted)
    return chosen(
        (_healed(self, job_status(events)) for events in found),
        states=() if state is None else (JobState(state),),
        only_unfinished=unfinished,
        window=TimeWindow(since=since, until=until),
    )


def query(self: JobsHandle, query_id: str, *, kind: JobKind | str = JobKind.QUERY) -> QueryStatus:
    """Return the status of a query, or of an export.

    Args:
        query_id: The query, or the export.
        kind: `query` or `export`.

    Raises:
        JobNotFound: nothing is known of it: it was not sent, or its events have expired.
        StorageFailed: the tracker cannot be reached.

    Source: rules QRY-15 and QRY-16.
    """
    events = self.stores.tracker.events_of_job(JobKind(kind), query_id)
    if not events:
        raise JobNotFound(
            f"nothing is known of {JobKind(kind)} {query_id!r} in {self.url}: it was not sent, or "
            "what happened to it was long ago"
        )
    tables = {event.table_id for event in events}
    return query_status(event for event in events if event.table_id == max(tables))


def file_of_query(self: JobsHandle, query_id: str, table_id: str) -> str | None:
    """Return the key of a query's file; None if its rows were not written.

    Args:
        query_id: The query.
        table_id: Its table.

    Raises:
        JobInvalid: a query of another table had this id: its files have it, or the tracker knows
            that it was begun.
        StorageFailed: the results cannot be listed.
    """
    file = self.results.query_file(query_id, table_id)
    if file is not None:
        return file
    try:
        events = self.stores.tracker.events_of_job(JobKind.QUERY, query_id)
    except StorageFailed as failure:
        _log.warning("the tracker cannot be asked about query %s: %s", query_id, failure)
        return None
    begun = {event.table_id for event in events if event.type is JobEventType.STARTED}
    if begun - {table_id}:
        raise JobInvalid((used_for_other_table(query_id),))
    return None


def queries(
    self: JobsHandle,
    *,
    kind: JobKind | str = JobKind.QUERY,
    table: str | None = None,
    state: QueryState | str | None = None,
) -> Iterator[QueryStatus]:
    """Yield queries or exports, that of the newest event first.

    Args:
        kind: `query` or `export`.
        table: Their table's name; all without it.
        state: How far they are, such as `FAILED`; any without it.

    Raises:
        TableNotFound: there is no such table.
        StorageFailed: the tracker cannot be reached.
    """
    table_id = None if table is None else self.table_id(table)
    wanted = None if state is None else QueryState(state)
    for events in self.stores.tracker.jobs(JobFilter(kind=JobKind(kind), table_id=table_id)):
        status = query_status(events)
        if wanted is None or status.state is wanted:
            yield status


def tasks(self: JobsHandle, kind: JobKind | str | None = None) -> Iterator[TaskStatus]:
    """Yield worker processes that ran jobs, the newest first."""
    wanted = None if kind is None else JobKind(kind)
    return map(task_status, self.stores.tracker.tasks(wanted))


def wait(
    self: JobsHandle,
    job_id: str,
    *,
    kind: JobKind | str = JobKind.INGEST,
    rest: Callable[[], bool],
) -> JobStatus:
    """Look at a job again and again until it has ended or `rest` returns False."""
    while True:
        status = job(self, job_id, kind=kind)
        if status.is_over or not rest():
            return status


def _healed(self: JobsHandle, status: JobStatus) -> JobStatus:
    """Return the status of a job as the table's log has it, and tell the tracker."""
    if status.kind is JobKind.COMPACTION:
        return _as_in_its_table(self, status)
    if status.kind is not JobKind.INGEST or status.state in (
        JobState.FINISHED,
        JobState.REJECTED,
    ):
        return status
    committed = _committed_event(self, status.table_id, status.job_id)
    if committed is None:
        return status
    self.recorder.record(committed)
    events = self.stores.tracker.events_of_job(JobKind.INGEST, status.job_id)
    known = [event for event in events if event.table_id == status.table_id]
    return job_status([*known, committed])


def _as_in_its_table(self: JobsHandle, status: JobStatus) -> JobStatus:
    """Return a compaction as finished or failed if its table says so and the tracker missed it.

    It is finished if the table has its file, and failed if that has neither file nor claims.
    """
    if status.is_over or status.partition_id is None:
        return status
    ended = JobEvent(
        kind=JobKind.COMPACTION,
        table_id=status.table_id,
        job_id=status.job_id,
        type=JobEventType.FINISHED,
        at=status.updated,
        run_id=status.job_id,
        files=1,
    )
    # Claims first: a job that ends between the two looks has its file at the second.
    may_run = self.tables.may_have_claims(status.table_id, status.job_id)
    output = paths.data_file(status.partition_id, status.job_id)
    if not self.tables.has_file(status.table_id, output):
        if may_run:
            return status
        ended = replace(
            ended, type=JobEventType.FAILED, files=None, reasons=(_LOST,), is_final=True
        )
    self.recorder.record(ended)
    events = self.stores.tracker.events_of_job(JobKind.COMPACTION, status.job_id)
    known = [event for event in events if event.table_id == status.table_id]
    return job_status([*known, ended])


def _unknown_to_tracker(
    self: JobsHandle, kind: JobKind, job_id: str, table_id: str | None
) -> JobStatus | None:
    """Return the status of an ingest that a log has and the tracker does not."""
    if kind is not JobKind.INGEST:
        return None
    ids = [record.table_id for record in self.tables.all()]
    for each in ids if table_id is None else [table_id]:
        committed = _committed_event(self, each, job_id)
        if committed is not None:
            return job_status([committed])
    return None


def _committed_event(self: JobsHandle, table_id: str, job_id: str) -> JobEvent | None:
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


# ---------------------------------------------------------------- queues
#
# What waits in queues, and the messages that are delivered no more.


def queue_depths(self: JobsHandle) -> Mapping[QueueName, QueueDepth]:
    """Return how many messages each queue has."""
    return {name: self.stores.queue(name).depth() for name in QueueName}


def dead_letters(
    self: JobsHandle, queue: QueueName | str, *, limit: int = 100
) -> Sequence[DeadLetter]:
    """Return messages of a queue that are delivered no more, oldest first."""
    return self.stores.queue(queue_name(queue)).dead_letters(limit)


def redrive(
    self: JobsHandle, queue: QueueName | str, message_ids: Sequence[str] | None = None
) -> int:
    """Put dead letters back into their queue, all or those named; return how many."""
    return self.stores.queue(queue_name(queue)).redrive(message_ids)


def delete_dead_letters(
    self: JobsHandle, queue: QueueName | str, message_ids: Sequence[str] | None = None
) -> int:
    """Delete dead letters for ever, all or those named; return how many."""
    return self.stores.queue(queue_name(queue)).delete_dead_letters(message_ids)
