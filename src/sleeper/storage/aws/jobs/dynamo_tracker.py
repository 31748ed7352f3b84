"""The tracker in DynamoDB."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from hashlib import blake2b
from itertools import groupby
from typing import Final

from sleeper.errors import StorageFailed
from sleeper.model.jobs.events import JobEvent, JobEventType, JobFilter, TaskEvent
from sleeper.model.jobs.kinds import JobKind
from sleeper.model.jobs.query_statuses import QueryState
from sleeper.storage.aws.dynamo_tables import (
    DynamoTable,
    DynamoTables,
    Item,
    as_microseconds,
    number,
)
from sleeper.storage.aws.jobs.dynamo_items import (
    PARTITION_KEY_BYTES_MAX,
    has_expired,
    job_event_item,
    job_event_of,
    key_text,
    number_of,
    task_event_item,
    task_event_of,
    text,
)

# ---------------------------------------------------------------- dynamo query table
#
# The table in which upstream's clients look for the state of a query (rule QRY-15).
#
# An item a query, as upstream writes it for a query as a whole. A failure after which the query is
# tried again is QUEUED there, because clients give up at FAILED.

QUERY_STATES: Final = DynamoTable(
    "query-tracking-table", (("queryId", "S"), ("subQueryId", "S")), "expiryDate"
)

_WHOLE = "-"
"""The sub-query id of a query as a whole."""
_ERRORS_MAX = 4_000
_NEW = "attribute_not_exists(queryId) OR expiryDate < :now"
_NOT_COMPLETED = f"{_NEW} OR lastKnownState <> :completed"


def query_state_put(
    table_name: str, events: Sequence[JobEvent], now: datetime, expires: datetime
) -> Item:
    """Return the part of a transaction that tells clients what happened to a query last.

    A query that is completed stays so, whatever else is reported of it later. That it was accepted
    changes nothing: the sender may tell so after the worker has told more.

    Args:
        table_name: The table's full name.
        events: What happened, in order; one at least.
        now: The clock (aware, UTC).
        expires: When the item may be deleted.
    """
    event = events[-1]
    state, seconds = _state(event), as_microseconds(now) // 1_000_000
    item = {
        "queryId": text(key_text(event.job_id, PARTITION_KEY_BYTES_MAX)),
        "subQueryId": text(_WHOLE),
        "lastKnownState": text(state.value),
        "lastUpdateTime": number(seconds),
        "rowCount": number(event.rows_written or 0),
        "expiryDate": number(-(-as_microseconds(expires) // 1_000_000)),
    }
    if event.reasons:
        item["errors"] = text("; because: ".join(event.reasons)[:_ERRORS_MAX])
    put: Item = {"TableName": table_name, "Item": item}
    if event.type is JobEventType.ACCEPTED:
        put["ConditionExpression"] = _NEW
        put["ExpressionAttributeValues"] = {":now": number(seconds)}
    elif state is not QueryState.COMPLETED:
        put["ConditionExpression"] = _NOT_COMPLETED
        put["ExpressionAttributeValues"] = {
            ":now": number(seconds),
            ":completed": text(QueryState.COMPLETED.value),
        }
    return {"Put": put}


def _state(event: JobEvent) -> QueryState:
    match event.type:
        case JobEventType.FINISHED:
            return QueryState.COMPLETED
        case JobEventType.STARTED:
            return QueryState.IN_PROGRESS
        case JobEventType.REJECTED:
            return QueryState.FAILED
        case JobEventType.FAILED if event.is_final:
            return QueryState.PARTIALLY_FAILED if event.rows_written else QueryState.FAILED
        case _:
            return QueryState.QUEUED


# ---------------------------------------------------------------- dynamo job tables
#
# The DynamoDB tables of jobs, tasks and submitted files.

NEWEST_OF_ALL: Final = "newest-of-all"
"""The index of jobs by their newest event."""

NEWEST_OF_TABLE: Final = "newest-of-table"
"""The index of each Sleeper table's jobs by their newest event."""

BY_VALIDATION: Final = "by-validation"
"""The index of ingest jobs by whether they were accepted last, or rejected: upstream's report of
rejected jobs reads it."""

BY_RECEIVED: Final = "by-received"
"""The index of submitted files by the time they were submitted."""

SUBMITTED_FILES: Final = DynamoTable(
    "ingest-batcher-store",
    (("JobId", "S"), ("FilePath", "S")),
    "ExpiryTime",
    ((BY_RECEIVED, (("Files", "S"), ("Received", "N"))),),
)
BATCHER_JOBS: Final = DynamoTable(
    "ingest-batcher-jobs", (("EntryKind", "S"), ("EntryId", "S")), "ExpiryTime"
)


def job_updates(kind: JobKind) -> DynamoTable:
    """Return the table of events of jobs."""
    return DynamoTable(
        f"{kind}-job-updates", (("TableId", "S"), ("JobIdAndUpdate", "S")), "ExpiryDate"
    )


def job_lookup(kind: JobKind) -> DynamoTable:
    """Return the table with an item for each job."""
    by_validation = (BY_VALIDATION, (("LastValidationResult", "S"),))
    return DynamoTable(
        f"{kind}-job-lookup",
        (("JobId", "S"), ("TableId", "S")),
        "ExpiryDate",
        (
            (NEWEST_OF_ALL, (("Jobs", "S"), ("Newest", "N"))),
            (NEWEST_OF_TABLE, (("TableId", "S"), ("Newest", "N"))),
            *([by_validation] if kind is JobKind.INGEST else []),
        ),
    )


def task_status(kind: JobKind) -> DynamoTable:
    """Return the table of events of tasks."""
    return DynamoTable(f"{kind}-task-status", (("TaskId", "S"), ("UpdateTime", "N")), "ExpiryDate")


_EVENTS_TOGETHER = 8
"""Events of a job in one transaction: at most 4 MB, with 400 KB each."""
_ATTEMPTS_MAX = 50
_JOBS_A_PAGE = 50


class DynamoTracker:
    """Events of jobs and tasks, safe for threads, processes and machines.

    A job has an item in a lookup table, with the times of its newest and oldest event, and an item
    for each event. Both are written in one transaction, with the item of a query that clients of
    upstream read.

    Args:
        tables: The instance's tables.
        now: The clock (aware, UTC).
        pause: Waits before another attempt, with jitter, given how many there were.
    """

    def __init__(
        self, tables: DynamoTables, *, now: Callable[[], datetime], pause: Callable[[int], None]
    ) -> None:
        self._tables, self._now, self._pause = tables, now, pause

    def record(self, events: Sequence[JobEvent | TaskEvent], *, expires: datetime) -> None:
        """Keep events; one that is there already stays as it is."""
        by_job: dict[tuple[JobKind, str, str], dict[JobEvent, None]] = {}
        for event in events:
            if isinstance(event, TaskEvent):
                self._record_task(event, expires)
            else:
                job = (event.kind, event.table_id, event.job_id)
                by_job.setdefault(job, {})[event] = None
        for different in by_job.values():
            of_job = list(different)
            for first in range(0, len(of_job), _EVENTS_TOGETHER):
                self._record_job(of_job[first : first + _EVENTS_TOGETHER], expires)

    def events_of_job(self, kind: JobKind, job_id: str) -> list[JobEvent]:
        """Return what happened to a job."""
        entries = self._tables.query(
            job_lookup(kind), "JobId = :job", {":job": text(key_text(job_id))}
        )
        return [
            event
            for entry in entries
            for event in self._events(kind, entry)
            if event.job_id == job_id
        ]

    def jobs(self, wanted: JobFilter) -> Iterator[list[JobEvent]]:
        """Yield the events of each job that fits. Beside a page, it holds 8 bytes a job.

        The index may lack what was recorded within about a second. Jobs that something happened to
        while they are listed come last.
        """
        seen = array("q")
        newest: int | None = None
        for entry in self._entries(wanted):
            newest = number_of(entry, "Newest") if newest is None else newest
            seen.append(_fingerprint(entry))
            yield from self._if_it_fits(entry, wanted)
        if newest is None:
            return
        for entry in self._entries(
            wanted, after=newest
        ):  # these may have moved past the first look
            if _fingerprint(entry) not in seen:
                yield from self._if_it_fits(entry, wanted)

    def tasks(self, kind: JobKind | None = None) -> Iterator[list[TaskEvent]]:
        """Yield the events of each task. It holds the id of each."""
        starts = [
            (started, each, task)
            for each in (JobKind if kind is None else (kind,))
            for task, started in self._task_starts(each).items()
        ]
        for _, each, task in sorted(starts, reverse=True):
            items = self._tables.query(task_status(each), "TaskId = :task", {":task": text(task)})
            events = [task_event_of(item) for item in items if not has_expired(item, self._time())]
            for _, same in groupby(sorted(events, key=_task_id), key=_task_id):
                yield sorted(same, key=lambda event: event.at)

    def delete_expired(self, now: datetime) -> int:
        """Do nothing: Amazon deletes what has expired, and until then it is not returned."""
        return 0

    def _time(self) -> datetime:
        """Return the server's time, by which it deletes: clocks of workers may be years behind."""
        return self._tables.last_answer or self._now()

    def _kept_until(self, expires: datetime) -> datetime:
        """Return when an item expires: later, where this machine's clock is behind the server's."""
        return expires + max(timedelta(0), self._time() - self._now())

    def _record_job(self, events: Sequence[JobEvent], expires: datetime) -> None:
        kind = events[0].kind
        lookup, updates = job_lookup(kind), job_updates(kind)
        self._tables.make(lookup, updates, *([QUERY_STATES] if kind is JobKind.QUERY else []))
        key = {
            "JobId": text(key_text(events[0].job_id)),
            "TableId": text(key_text(events[0].table_id)),
        }
        for attempt in range(_ATTEMPTS_MAX):
            entry = self._tables.get(lookup, key)
            kept_until = self._kept_until(expires)
            count = 0 if entry is None else number_of(entry, "EventCount")
            guard = {
                "TableName": self._tables.name(lookup),
                "Item": {**key, **_summary(entry, events, kept_until)},
                "ConditionExpression": "attribute_not_exists(JobId) OR EventCount = :count",
                "ExpressionAttributeValues": {":count": number(count)},
            }
            groups = [
                [self._put(event, count + n, kept_until, self._tables.name(updates))]
                for n, event in enumerate(events)
            ]
            if kind is JobKind.QUERY:
                name = self._tables.name(QUERY_STATES)
                groups.append([query_state_put(name, events, self._time(), kept_until)])
            if self._tables.write_together(groups, guard={"Put": guard}) is not None:
                return
            self._pause(attempt)
        raise StorageFailed(
            f"cannot record events of job {events[0].job_id[:100]!r}: others recorded some in each "
            f"of {_ATTEMPTS_MAX} attempts. The job goes on; reports lack these events."
        )

    def _put(self, event: JobEvent, position: int, expires: datetime, name: str) -> Item:
        now = self._now()
        return {
            "Put": {
                "TableName": name,
                "Item": job_event_item(event, position, now, expires),
                "ConditionExpression": "attribute_not_exists(TableId) OR Expires < :now",
                "ExpressionAttributeValues": {":now": number(as_microseconds(self._time()))},
            }
        }

    def _record_task(self, event: TaskEvent, expires: datetime) -> None:
        """Store an event under its time; another of that millisecond has the next as its key."""
        table = task_status(event.kind)
        self._tables.make(table)
        item = task_event_item(event, self._kept_until(expires))
        key = {name: item[name] for name, _ in table.key}
        while True:
            put = {
                "TableName": self._tables.name(table),
                "Item": {**item, **key},
                "ConditionExpression": "attribute_not_exists(TaskId) OR Expires < :now",
                "ExpressionAttributeValues": {":now": number(as_microseconds(self._time()))},
            }
            if self._tables.write_together([[{"Put": put}]]):
                return
            there = self._tables.get(table, key)
            if there is not None and task_event_of(there) == event:
                return
            if there is not None:
                key["UpdateTime"] = number(number_of(key, "UpdateTime") + 1)

    def _entries(self, wanted: JobFilter, after: int | None = None) -> Iterator[Item]:
        """Yield items of jobs that may fit, that of the newest event first."""
        since = 0 if wanted.since is None else as_microseconds(wanted.since)
        values = {":since": number(since if after is None else max(since, after + 1))}
        filters = []
        if wanted.until is not None:
            filters.append("Oldest < :until")
            values[":until"] = number(as_microseconds(wanted.until))
        if wanted.task_id is not None:
            filters.append("contains(TaskIds, :task)")
            values[":task"] = text(key_text(wanted.task_id))
        if wanted.table_id is None:
            index, condition, values[":in"] = NEWEST_OF_ALL, "Jobs = :in", text("all")
        else:
            index, condition = NEWEST_OF_TABLE, "TableId = :in"
            values[":in"] = text(key_text(wanted.table_id))
        options: Item = {"FilterExpression": " AND ".join(filters)} if filters else {}
        return self._tables.query(
            job_lookup(wanted.kind),
            f"{condition} AND Newest >= :since",
            values,
            IndexName=index,
            ScanIndexForward=False,
            Limit=_JOBS_A_PAGE,
            **options,
        )

    def _if_it_fits(self, entry: Item, wanted: JobFilter) -> Iterator[list[JobEvent]]:
        by_job: dict[tuple[str, str], list[JobEvent]] = {}
        for event in self._events(wanted.kind, entry):
            by_job.setdefault((event.table_id, event.job_id), []).append(event)
        for events in by_job.values():  # mostly one: keys of two odd ids may be the same
            if _fits(events, wanted):
                yield events

    def _events(self, kind: JobKind, entry: Item) -> list[JobEvent]:
        """Return the events of a job in the order they were recorded."""
        job = entry["JobId"]["S"]
        items = self._tables.query(
            job_updates(kind),
            "TableId = :table AND begins_with(JobIdAndUpdate, :job)",
            {":table": entry["TableId"], ":job": text(f"{job}|")},
        )
        found = [
            item
            for item in items
            if item["JobId"]["S"] == job and not has_expired(item, self._time())
        ]
        return [
            job_event_of(item)
            for item in sorted(found, key=lambda item: number_of(item, "Position"))
        ]

    def _task_starts(self, kind: JobKind) -> dict[str, int]:
        """Return the key of each task, and when it started."""
        starts: dict[str, int] = {}
        items = self._tables.scan(
            task_status(kind), ProjectionExpression="TaskId, UpdateTime, Expires"
        )
        for item in (each for each in items if not has_expired(each, self._time())):
            task, at = item["TaskId"]["S"], number_of(item, "UpdateTime")
            starts[task] = min(at, starts.get(task, at))
        return starts


def _summary(entry: Item | None, events: Sequence[JobEvent], expires: datetime) -> Item:
    """Return what the lookup table has of a job once these events are recorded too."""
    times = [as_microseconds(event.at) for event in events]
    tasks = {key_text(event.task_id) for event in events if event.task_id is not None}
    microseconds, count = as_microseconds(expires), len(events)
    if entry is not None:
        count += number_of(entry, "EventCount")
        times += [number_of(entry, "Newest"), number_of(entry, "Oldest")]
        tasks |= set(entry["TaskIds"]["SS"]) if "TaskIds" in entry else set()
        microseconds = max(microseconds, number_of(entry, "Expires"))
    item = {
        "Jobs": text("all"),
        "EventCount": number(
            len(events) + (0 if entry is None else number_of(entry, "EventCount"))
        ),
        "Newest": number(max(times)),
        "Oldest": number(min(times)),
        "ExpiryDate": number(-(-microseconds // 1_000_000)),
        "Expires": number(microseconds),
    }
    validated = _validated(events) or (None if entry is None else entry.get("LastValidationResult"))
    item |= {"TaskIds": {"SS": sorted(tasks)}} if tasks else {}
    return item | ({"LastValidationResult": validated} if validated else {})


def _validated(events: Sequence[JobEvent]) -> Item | None:
    """Return whether an ingest was accepted last, or rejected; None where nothing says it."""
    last = None
    for event in events:
        is_validation = event.type in (JobEventType.ACCEPTED, JobEventType.REJECTED)
        if event.kind is JobKind.INGEST and is_validation:
            last = text(event.type.name)
    return last


def _fits(events: Sequence[JobEvent], wanted: JobFilter) -> bool:
    """Return whether a job is asked for, by those of its events that have not expired."""
    times = [event.at for event in events]
    return (
        (wanted.table_id is None or wanted.table_id == events[0].table_id)
        and (wanted.task_id is None or wanted.task_id in {event.task_id for event in events})
        and (wanted.since is None or wanted.since <= max(times))
        and (wanted.until is None or wanted.until > min(times))
    )


def _fingerprint(entry: Item) -> int:
    key = f"{entry['TableId']['S']}\n{entry['JobId']['S']}".encode()
    return int.from_bytes(blake2b(key, digest_size=8).digest(), "big", signed=True)


def _task_id(event: TaskEvent) -> str:
    return event.task_id
