"""What became of jobs: the tracker's events and the table's log, joined into one answer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from sleeper.engine.rows import Rows
from sleeper.errors import BadRequest, JobInvalid, JobNotFound, StorageFailed, TableNotFound
from sleeper.jobs.arguments import (
    answer_kind,
    check_times,
    checked_limit,
    id_text,
    job_kind,
    member,
    message_ids_of,
    queue_name,
    table_text,
)
from sleeper.jobs.job_results import used_for_other_table
from sleeper.jobs.jobs_handle import JobsHandle
from sleeper.model import paths
from sleeper.model.formats.message_json import id_in_message
from sleeper.model.jobs.attempts import attempts_of, open_messages
from sleeper.model.jobs.events import UNKNOWN_TABLE, JobEvent, JobEventType, JobFilter
from sleeper.model.jobs.kinds import ANSWERS, JobKind, QueueName, queues_of
from sleeper.model.jobs.messages import DeadLetter, QueueDepth
from sleeper.model.jobs.query_statuses import QueryState, QueryStatus, query_status
from sleeper.model.jobs.statuses import JobState, JobStatus, in_order, job_status
from sleeper.model.jobs.tasks import TaskStatus, task_status
from sleeper.model.jobs.time_windows import UNFINISHED_FOR, TimeWindow, chosen

_log = logging.getLogger(__name__)

_LOST = "its worker was killed: the table has neither claims nor a file of the job"
_LETTERS_MAX = 1_000
_FIRST_TIME = datetime(1970, 1, 1, tzinfo=UTC)  # nothing happened before


def job(
    self: JobsHandle, job_id: str, *, kind: JobKind | str = JobKind.INGEST, table: str | None = None
) -> JobStatus:
    """Return the status of a job.

    An ingest that a table's log has is finished, whatever the tracker missed.

    Args:
        job_id: The job.
        kind: What it does: ingest (bulk imports included), compaction, query or export.
        table: Its table's name or id, where two tables have a job of this id.

    Raises:
        JobNotFound: nothing is known of it: it was not sent, or its events have expired.
        BadRequest: two tables have such a job, and `table` names none.
        TableNotFound: there is no such table, nor was there a job of this id for it.
        StorageFailed: the tracker cannot be reached.
    """
    wanted, job_id = job_kind(kind), id_text(job_id, "job_id")
    events = _events_of(self, wanted, job_id, table)
    if events:
        return _healed(self, events)
    found = _unknown_to_tracker(self, wanted, job_id, table)
    if found is not None:
        return found
    raise _nothing_known(self, wanted, job_id)


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
        table: Their table's name or id; all without it.
        state: How far they are, such as `FAILED`; any without it.
        unfinished: Only those of which something may still come by itself.
        task_id: A worker that ran them.
        since: They ended at this time or later (aware), or have no end and started at most a day
            before it.
        until: They started before this time (aware).

    Raises:
        BadRequest: a time has no time zone, or there is no such kind or state.
        TableNotFound: there is no such table, nor is anything known of its jobs.
        StorageFailed: the tracker cannot be reached.

    Source: rule TRK-7.
    """
    check_times(since=since, until=until)
    of_kind = job_kind(kind)
    states = () if state is None else (member(JobState, state, "state"),)
    seen_since = None if since is None else max(since, _FIRST_TIME) - UNFINISHED_FOR
    wanted = JobFilter(
        kind=of_kind,
        table_id=None if table is None else _listed_table(self, of_kind, table),
        task_id=None if task_id is None else id_text(task_id, "task_id"),
        since=seen_since,
        until=until,
    )
    found = self.stores.tracker.jobs(wanted)
    return chosen(
        (_healed(self, events) for events in _shown(self, found)),
        states=states,
        only_unfinished=unfinished,
        window=TimeWindow(since=since, until=until),
    )


def query(
    self: JobsHandle,
    query_id: str,
    *,
    kind: JobKind | str = JobKind.QUERY,
    table: str | None = None,
) -> QueryStatus:
    """Return the status of a query, or of an export.

    Args:
        query_id: The query, or the export.
        kind: `query` or `export`.
        table: Its table's name or id, where two tables have one of this id. A query that was
            refused because a query of another table has its id is shown by its table alone.

    Raises:
        JobNotFound: nothing is known of it: it was not sent, or its events have expired.
        BadRequest: two tables have one of this id, and `table` names none.
        TableNotFound: there is no such table, nor was there one of this id for it.
        StorageFailed: the tracker cannot be reached.

    Source: rules QRY-15 and QRY-16.
    """
    wanted, query_id = answer_kind(kind), id_text(query_id, "query_id")
    events = _events_of(self, wanted, query_id, table)
    if not events:
        raise _nothing_known(self, wanted, query_id)
    return query_status(with_dead_letters(self, events))


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


def query_rows(self: JobsHandle, query_id: str, *, table: str | None = None) -> Rows:
    """Return the rows that a query wrote to its file in the instance, as a stream.

    Args:
        query_id: The query.
        table: Its table's name or id, where two tables have a query of this id.

    Raises:
        JobNotFound: nothing is known of it, or its rows are there no longer.
        BadRequest: it has not completed, its rows went to a queue or nowhere, or two tables have a
            query of this id, and `table` names none.
        TableNotFound: there is no such table, nor was there a query of this id for it.
        StorageFailed: the tracker or the rows cannot be reached.
        DataDamaged: the file is damaged.

    Source: rule QRY-10.
    """
    status = query(self, query_id, table=table)
    if status.state is not QueryState.COMPLETED:
        why = f" ({'; '.join(status.errors)})" if status.errors else ""
        raise BadRequest(
            f"query {query_id!r} is {status.state}{why}, and has no rows: they are there once it "
            "is COMPLETED"
        )
    file = file_of_query(self, query_id, status.table_id)
    if file is not None:
        return self.results.read_query(query_id, file)
    place = ", ".join(status.locations)
    if place != self.results.query_location(query_id, status.table_id):
        raise BadRequest(
            f"rows of query {query_id!r} went to {place or 'nowhere'}, as it said itself, and not "
            "to a file of the instance"
        )
    raise JobNotFound(
        f"the rows of query {query_id!r} are there no longer: {place} was deleted, as results are "
        "after some days. Submit the query again, under another id"
    )


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
        BadRequest: there is no such kind or state.
        TableNotFound: there is no such table, nor is anything known of its queries.
        StorageFailed: the tracker cannot be reached.
    """
    of_kind = answer_kind(kind)
    wanted = None if state is None else member(QueryState, state, "state")
    table_id = None if table is None else _listed_table(self, of_kind, table)
    found = self.stores.tracker.jobs(JobFilter(kind=of_kind, table_id=table_id))
    statuses = (query_status(with_dead_letters(self, events)) for events in _shown(self, found))
    return (status for status in statuses if wanted is None or status.state is wanted)


def tasks(
    self: JobsHandle, kind: JobKind | str | None = None, *, unfinished: bool = False
) -> Iterator[TaskStatus]:
    """Yield worker processes that ran jobs, the newest first.

    Args:
        kind: What their jobs do; None for all kinds.
        unfinished: Only those that have not said that they ended.

    Raises:
        BadRequest: there is no such kind.
        StorageFailed: the tracker cannot be reached.

    Source: rule TRK-6.
    """
    wanted = None if kind is None else job_kind(kind)
    found = map(task_status, self.stores.tracker.tasks(wanted))
    return (task for task in found if not (unfinished and task.is_finished))


def wait(
    self: JobsHandle,
    job_id: str,
    *,
    kind: JobKind | str = JobKind.INGEST,
    table: str | None = None,
    rest: Callable[[], bool],
) -> JobStatus:
    """Look at a job again and again until it has ended or `rest` returns False.

    Raises:
        What `job` raises.
    """
    while True:
        status = job(self, job_id, kind=kind, table=table)
        if status.is_over or not rest():
            return status


def _events_of(self: JobsHandle, kind: JobKind, job_id: str, table: str | None) -> list[JobEvent]:
    """Return the events of the one job of this id, or of that of a table; none without any.

    Raises:
        BadRequest: several tables have such a job, and none is named.
        TableNotFound: the table that is named does not exist, and never had such a job.
    """
    by_table: dict[str, list[JobEvent]] = {}
    for event in self.stores.tracker.events_of_job(kind, job_id):
        by_table.setdefault(event.table_id, []).append(event)
    if table is not None:
        record = self.tables.find(table_id=None, table_name=table_text(table))
        if record is not None:
            return by_table.get(record.table_id, [])
        return by_table[table] if table in by_table else _of_no_table(self, table)
    chosen_ids = _answering(self, kind, by_table)
    if len(chosen_ids) > 1:
        names = {record.table_id: record.name for record in self.tables.all()}
        tables = ", ".join(sorted(names.get(each, f"{each} (deleted)") for each in chosen_ids))
        raise BadRequest(f"tables {tables} each have a job {job_id!r}: name the table")
    return [event for each in chosen_ids for event in by_table[each]]


def _of_no_table(self: JobsHandle, table: str) -> list[JobEvent]:
    if self.tables.find(table_id=table, table_name=None) is not None:
        return []
    raise TableNotFound(
        f"no table {table!r} in {self.url}. A job of a table that was renamed or deleted since is "
        "found by its id alone, or by the table's id."
    )


def _answering(
    self: JobsHandle, kind: JobKind, by_table: Mapping[str, Sequence[JobEvent]]
) -> list[str]:
    """Return the tables whose jobs of one id are meant where no table is named.

    A message for a table that was not there says nothing of a job that there is; and a query that
    was refused leaves its id to the query of another table that has it.
    """
    wanted = [each for each in by_table if each != UNKNOWN_TABLE] or [*by_table]
    if kind is not JobKind.QUERY or len(wanted) == 1:
        return wanted
    accepted = [each for each in wanted if not _is_refused(by_table[each])]
    return accepted or wanted


def _is_refused(events: Iterable[JobEvent]) -> bool:
    return all(event.type is JobEventType.REJECTED for event in events)


def _shown(self: JobsHandle, found: Iterable[Sequence[JobEvent]]) -> Iterator[Sequence[JobEvent]]:
    """Leave out messages for no table whose job another table has: `job` tells of that one."""
    for events in found:
        first = events[0]
        if first.table_id == UNKNOWN_TABLE:
            same = self.stores.tracker.events_of_job(first.kind, first.job_id)
            if any(event.table_id != UNKNOWN_TABLE for event in same):
                continue
        yield events


def _listed_table(self: JobsHandle, kind: JobKind, table: str) -> str:
    """Return the id of a table whose jobs are listed, by its name, or its id, deleted or not.

    Raises:
        TableNotFound: there is none, and nothing is known of its jobs.
    """
    name = table_text(table)
    record = self.tables.find(table_id=None, table_name=name)
    record = record or self.tables.find(table_id=name, table_name=None)
    if record is not None:
        return record.table_id
    if any(True for _ in self.stores.tracker.jobs(JobFilter(kind=kind, table_id=name))):
        return name
    raise TableNotFound(f"no table {table!r} in {self.url}")


def _nothing_known(self: JobsHandle, kind: JobKind, job_id: str) -> JobNotFound:
    what = kind if kind in ANSWERS else f"{kind} job"
    return JobNotFound(
        f"nothing is known of {what} {job_id!r} in {self.url}: it was not sent, or what happened "
        "to it was long ago"
    )


def _healed(self: JobsHandle, events: Sequence[JobEvent]) -> JobStatus:
    """Return the status of a job as its table's log and its queue have it; tell the tracker."""
    status = job_status(events)
    if status.kind is JobKind.COMPACTION:
        return _as_in_its_table(self, status)
    if status.kind is not JobKind.INGEST or status.state in (
        JobState.FINISHED,
        JobState.REJECTED,
    ):
        return job_status(with_dead_letters(self, events))
    committed = _committed_event(self, status.table_id, status.job_id)
    if committed is None:
        return job_status(with_dead_letters(self, events))
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
    self: JobsHandle, kind: JobKind, job_id: str, table: str | None
) -> JobStatus | None:
    """Return the status of an ingest that a log has and the tracker does not.

    Raises:
        BadRequest: several tables have it, and none is named.
    """
    if kind is not JobKind.INGEST:
        return None
    records = [
        record
        for record in self.tables.all()
        if table is None or table in (record.name, record.table_id)
    ]
    found = {
        record.name: committed
        for record in records
        if (committed := _committed_event(self, record.table_id, job_id)) is not None
    }
    if len(found) > 1:
        tables = ", ".join(sorted(found))
        raise BadRequest(f"tables {tables} each have a job {job_id!r}: name the table")
    return next((job_status([committed]) for committed in found.values()), None)


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


def with_dead_letters(self: JobsHandle, events: Sequence[JobEvent]) -> Sequence[JobEvent]:
    """Return events of a job with the end of its messages that became dead letters by themselves.

    A queue buries a message that was received too often: its workers were killed, and none is left
    to tell. Where each look costs money, those who ask share one for some seconds.
    """
    open_ids = open_messages(attempts_of(in_order(events)))
    if not open_ids:
        return events
    kind, known = events[0].kind, [*events]
    if self.stores.are_charged:
        return _events_after_a_look(self, events) if self.may_look(kind) else events
    for message_id in open_ids:
        for queue in queues_of(kind):
            letter = self.stores.queue(queue).dead_letter(message_id)
            if letter is not None:
                ended = _ended(self, letter, known)
                self.recorder.record(ended)
                known.append(ended)
    return known


def _events_after_a_look(self: JobsHandle, events: Sequence[JobEvent]) -> Sequence[JobEvent]:
    """Look at the dead letters of a job's queues, and return its events as they are then.

    Whoever may read the tracker and not the queues is told what the tracker has.
    """
    first = events[0]
    try:
        if not _note_dead_letters(self, queues_of(first.kind)):
            return events
    except StorageFailed as failure:
        _log.info("dead letters of %s jobs cannot be looked at: %s", first.kind, failure)
        return events
    known = self.stores.tracker.events_of_job(first.kind, first.job_id)
    return [event for event in known if event.table_id == first.table_id]


def note_dead_letters(self: JobsHandle) -> int:
    """Record the end of jobs whose messages became dead letters by themselves; return how many.

    Of each queue, the oldest thousand dead letters are looked at.

    Raises:
        StorageFailed: a queue or the tracker cannot be reached.
    """
    return _note_dead_letters(self, (name for kind in JobKind for name in queues_of(kind)))


def _note_dead_letters(self: JobsHandle, names: Iterable[QueueName]) -> int:
    noted = 0
    for name in names:
        queue = self.stores.queue(name)
        if queue.depth().dead:
            noted += _noted(self, name, queue.dead_letters(_LETTERS_MAX))
    return noted


def _noted(self: JobsHandle, queue: QueueName, letters: Sequence[DeadLetter]) -> int:
    """Record the end of those jobs of dead letters of which nobody did; return how many."""
    noted = 0
    for kind in (kind for kind in JobKind if queue in queues_of(kind)):
        for letter in letters:
            events = _events_of_letter(self, kind, letter)
            open_ids = open_messages(attempts_of(in_order(events))) if events else ()
            if letter.message_id in open_ids:
                self.recorder.record(_ended(self, letter, events))
                noted += 1
    return noted


def record_redriven(self: JobsHandle, queue: QueueName, letter: DeadLetter) -> None:
    """Record that the job of a dead letter waits again."""
    for kind in JobKind:
        events = _events_of_letter(self, kind, letter) if queue in queues_of(kind) else ()
        if events:
            again = replace(
                _ended(self, letter, events), type=JobEventType.ACCEPTED, reasons=(), is_final=False
            )
            self.recorder.record(again)


def _events_of_letter(self: JobsHandle, kind: JobKind, letter: DeadLetter) -> list[JobEvent]:
    """Return what the tracker knows of a dead letter's job by its message."""
    job_id = id_in_message(letter.body) or letter.message_id
    known = self.stores.tracker.events_of_job(kind, job_id)
    tables = {each.table_id for each in known if each.message_id == letter.message_id}
    return [each for each in known if each.table_id == max(tables, default=None)]


def _ended(self: JobsHandle, letter: DeadLetter, events: Sequence[JobEvent]) -> JobEvent:
    """Return the event of a job whose message is delivered no more."""
    numbers = (each.attempt or 0 for each in events if each.message_id == letter.message_id)
    return JobEvent(
        kind=events[0].kind,
        table_id=events[0].table_id,
        job_id=events[0].job_id,
        type=JobEventType.FAILED,
        at=self.recorder.now(),
        reasons=(letter.reason,),
        message_id=letter.message_id,
        attempt=1 + max(numbers, default=0),
        is_final=True,
    )


def dead_letters(
    self: JobsHandle, queue: QueueName | str, *, limit: int = 100
) -> Sequence[DeadLetter]:
    """Return messages of a queue that are delivered no more, oldest first.

    The tracker is told of those that the queue buried by itself.
    """
    name = queue_name(queue)
    letters = self.stores.queue(name).dead_letters(checked_limit(limit))
    _noted(self, name, letters)
    return letters


def redrive(
    self: JobsHandle, queue: QueueName | str, message_ids: Sequence[str] | None = None
) -> int:
    """Put dead letters back into their queue, all or those named; return how many.

    Their jobs are tried again, so they have failed for good no longer.
    """
    name, ids = queue_name(queue), message_ids_of(message_ids)
    of_queue = self.stores.queue(name)
    letters = [
        letter
        for letter in of_queue.dead_letters(_LETTERS_MAX)
        if ids is None or letter.message_id in ids
    ]
    count = of_queue.redrive(ids)
    for letter in letters:
        record_redriven(self, name, letter)
    return count


def delete_dead_letters(
    self: JobsHandle, queue: QueueName | str, message_ids: Sequence[str] | None = None
) -> int:
    """Delete dead letters for ever, all or those named; return how many.

    The tracker is told before that their jobs have failed for good.
    """
    note_dead_letters(self)
    return self.stores.queue(queue_name(queue)).delete_dead_letters(message_ids_of(message_ids))
