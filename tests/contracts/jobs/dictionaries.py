"""Everything that jobs need, in dictionaries: what the adapters are compared with in any order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import count
from threading import RLock

from sleeper.model.jobs.events import JobEvent, JobFilter, TaskEvent
from sleeper.model.jobs.kinds import JobKind, QueueName
from sleeper.model.jobs.messages import (
    CLOCK_STEP,
    DEDUPLICATION,
    DeadLetter,
    NewMessage,
    QueueDepth,
    QueueSettings,
    ReceivedMessage,
    check_hidden,
    check_new_messages,
    check_receive,
    received_too_often,
)
from sleeper.model.jobs.submitted_files import SubmittedFile, UnsentJob
from sleeper.ports.ids import NewId

# ---------------------------------------------------------------- job queue
#
# A queue in dictionaries.

_PAUSE_S = 0.02


@dataclass(slots=True)
class _QueuedMessage:
    """A message of the queue: not visible from `since` to `visible`."""

    number: int
    message_id: str
    body: str
    group: str | None
    sent: datetime
    since: datetime
    visible: datetime
    receives: int = 0
    receipt: str | None = None


class MemoryQueue:
    """One queue in the memory of this process, safe for threads.

    Args:
        name: The queue's name, for messages.
        settings: How it delivers.
        now: The clock (aware, UTC).
        sleep: Waits for so many seconds.
        new_id: Makes ids of messages and receipts.
    """

    def __init__(
        self,
        name: QueueName,
        settings: QueueSettings,
        *,
        now: Callable[[], datetime],
        sleep: Callable[[float], None],
        new_id: NewId,
    ) -> None:
        self._name, self._settings = name, settings
        self._now, self._sleep, self._new_id = now, sleep, new_id
        self._numbers = count()
        self._held: dict[int, _QueuedMessage] = {}
        self._dead: dict[str, DeadLetter] = {}
        self._sent_ids: dict[str, datetime] = {}
        self._lock = RLock()

    def send(self, messages: Sequence[NewMessage]) -> None:
        """Keep messages, all or none."""
        check_new_messages(messages, self._name, self._settings)
        if not messages:
            return
        with self._lock:
            now = self._time()
            for message in messages:
                if self._is_new(message.deduplication_id, now):
                    visible = now + timedelta(seconds=message.delay_s)
                    message_id = message.message_id or self._new_id()
                    self._keep(message_id, message.body, message.group, now, now, visible)

    def receive(
        self, count_max: int = 1, *, wait_s: float = 0.0, visibility_s: float | None = None
    ) -> list[ReceivedMessage]:
        """Return messages that are ready, and hide them."""
        hidden_s = self._settings.visibility_s if visibility_s is None else visibility_s
        check_receive(count_max, wait_s, hidden_s)
        waited_s = 0.0
        while True:
            received = self._take(count_max, timedelta(seconds=hidden_s))
            if received or waited_s >= wait_s:
                return received
            pause_s = min(_PAUSE_S, wait_s - waited_s)
            self._sleep(pause_s)
            waited_s += pause_s

    def extend(self, receipt: str, visibility_s: float) -> bool:
        """Hide a message from now on."""
        check_hidden(visibility_s, "visibility_s")
        return self._hide(receipt, visibility_s)

    def release(self, receipt: str, delay_s: float = 0.0, *, counted: bool = True) -> bool:
        """Let a message be received again after a delay."""
        check_hidden(delay_s, "delay_s")
        return self._hide(receipt, delay_s, uncounted=0 if counted else 1)

    def delete(self, receipts: Sequence[str]) -> list[bool]:
        """Forget messages."""
        if not receipts:
            return []
        with self._lock:
            self._time()
            return [self._pop(receipt) is not None for receipt in receipts]

    def bury(self, receipt: str, reason: str) -> bool:
        """Make a message a dead letter."""
        with self._lock:
            now = self._time()
            message = self._pop(receipt)
            if message is not None:
                self._add_dead(message, reason, now)
            return message is not None

    def dead_letters(self, count_max: int = 100) -> list[DeadLetter]:
        """Return dead letters, oldest first."""
        with self._lock:
            return list(self._dead.values())[: max(0, count_max)]

    def dead_letter(self, message_id: str) -> DeadLetter | None:
        """Return one dead letter."""
        with self._lock:
            return self._dead.get(message_id)

    def redrive(self, message_ids: Sequence[str] | None = None) -> int:
        """Make dead letters messages again, behind all others."""
        with self._lock:
            now = self._time()
            letters = self._pop_dead(message_ids)
            for each in letters:
                self._keep(each.message_id, each.body, each.group, each.sent, now, now)
            return len(letters)

    def delete_dead_letters(self, message_ids: Sequence[str] | None = None) -> int:
        """Forget dead letters."""
        with self._lock:
            return len(self._pop_dead(message_ids))

    def ready(self) -> int:
        """Count the messages that wait."""
        return self.depth().ready

    def depth(self) -> QueueDepth:
        """Count messages."""
        with self._lock:
            now = self._now()
            hidden = sum(
                each.visible > now and each.since <= now + CLOCK_STEP
                for each in self._held.values()
            )
            sent = min((each.sent for each in self._held.values()), default=None)
            return QueueDepth(
                ready=len(self._held) - hidden,
                hidden=hidden,
                dead=len(self._dead),
                oldest_s=None if sent is None else max(0.0, (now - sent).total_seconds()),
            )

    def _time(self) -> datetime:
        """Return the time; what was hidden before the clock was set back is hidden no more."""
        now = self._now()
        for each in self._held.values():
            if each.since > now + CLOCK_STEP:
                each.since = each.visible = now
        return now

    def _is_new(self, deduplication_id: str | None, now: datetime) -> bool:
        if deduplication_id is None:
            return True
        sent = self._sent_ids.get(deduplication_id)
        if sent is not None and now - DEDUPLICATION < sent <= now + CLOCK_STEP:
            return False
        self._sent_ids[deduplication_id] = now
        return True

    def _keep(
        self,
        message_id: str,
        body: str,
        group: str | None,
        sent: datetime,
        since: datetime,
        visible: datetime,
    ) -> None:
        number = next(self._numbers)
        self._held[number] = _QueuedMessage(number, message_id, body, group, sent, since, visible)

    def _take(self, count_max: int, hidden: timedelta) -> list[ReceivedMessage]:
        received: list[ReceivedMessage] = []
        with self._lock:
            now = self._time()
            for message in self._ready(now):
                if len(received) == count_max:
                    break
                if message.receives >= self._settings.receives_max:
                    del self._held[message.number]
                    self._add_dead(message, received_too_often(message.receives), now)
                else:
                    received.append(self._deliver(message, now, now + hidden))
        return received

    def _ready(self, now: datetime) -> list[_QueuedMessage]:
        ready = [each for each in self._held.values() if each.visible <= now]
        if not self._settings.fifo:
            return sorted(ready, key=lambda each: (each.visible, each.sent, each.number))
        blocked = {each.group for each in self._held.values() if each.visible > now}
        return [each for each in ready if each.group not in blocked]

    def _deliver(
        self, message: _QueuedMessage, now: datetime, visible: datetime
    ) -> ReceivedMessage:
        message.receives += 1
        message.receipt = f"{message.number}-{self._new_id()}"
        message.since, message.visible = now, visible
        return ReceivedMessage(
            receipt=message.receipt,
            message_id=message.message_id,
            body=message.body,
            group=message.group,
            receives=message.receives,
            sent=message.sent,
        )

    def _hide(self, receipt: str, seconds: float, uncounted: int = 0) -> bool:
        with self._lock:
            now = self._time()
            message = self._find(receipt)
            if message is not None:
                message.since, message.visible = now, now + timedelta(seconds=seconds)
                message.receives = max(0, message.receives - uncounted)
            return message is not None

    def _find(self, receipt: str) -> _QueuedMessage | None:
        number, _, _ = receipt.partition("-")
        message = self._held.get(int(number)) if number.isdecimal() else None
        return message if message is not None and message.receipt == receipt else None

    def _pop(self, receipt: str) -> _QueuedMessage | None:
        message = self._find(receipt)
        return None if message is None else self._held.pop(message.number)

    def _add_dead(self, message: _QueuedMessage, reason: str, now: datetime) -> None:
        self._dead[message.message_id] = DeadLetter(
            message_id=message.message_id,
            body=message.body,
            group=message.group,
            reason=reason,
            receives=message.receives,
            sent=message.sent,
            buried=now,
        )

    def _pop_dead(self, message_ids: Sequence[str] | None) -> list[DeadLetter]:
        wanted = self._dead.keys() if message_ids is None else set(message_ids)
        found = [each for each in self._dead.values() if each.message_id in wanted]
        for each in found:
            del self._dead[each.message_id]
        return found


# ---------------------------------------------------------------- job tracker
#
# A tracker in dictionaries.


class MemoryTracker:
    """Events of jobs and tasks in the memory of this process, safe for threads."""

    def __init__(self) -> None:
        self._expires: dict[JobEvent | TaskEvent, datetime] = {}  # in the order of recording
        self._lock = RLock()

    def record(self, events: Sequence[JobEvent | TaskEvent], *, expires: datetime) -> None:
        """Keep events; one that is there already stays as it is."""
        with self._lock:
            for event in events:
                self._expires.setdefault(event, expires)

    def events_of_job(self, kind: JobKind, job_id: str) -> list[JobEvent]:
        """Return what happened to a job."""
        return [each for each in self._job_events() if (each.kind, each.job_id) == (kind, job_id)]

    def jobs(self, wanted: JobFilter) -> Iterator[list[JobEvent]]:
        """Yield the events of each job that fits."""
        by_job: dict[tuple[str, str], list[JobEvent]] = {}
        for event in self._job_events():
            if event.kind is wanted.kind:
                by_job.setdefault((event.table_id, event.job_id), []).append(event)
        fitting = [events for events in by_job.values() if _fits(events, wanted)]
        return iter(sorted(fitting, key=lambda events: max(e.at for e in events), reverse=True))

    def tasks(self, kind: JobKind | None = None) -> Iterator[list[TaskEvent]]:
        """Yield the events of each task."""
        with self._lock:
            events = [each for each in self._expires if isinstance(each, TaskEvent)]
        by_task: dict[tuple[JobKind, str], list[TaskEvent]] = {}
        for event in events:
            if kind in (None, event.kind):
                by_task.setdefault((event.kind, event.task_id), []).append(event)
        return iter(
            sorted(by_task.values(), key=lambda events: min(e.at for e in events), reverse=True)
        )

    def delete_expired(self, now: datetime) -> int:
        """Forget events that have expired."""
        with self._lock:
            expired = [event for event, expires in self._expires.items() if expires < now]
            for event in expired:
                del self._expires[event]
            return len(expired)

    def _job_events(self) -> list[JobEvent]:
        with self._lock:
            return [each for each in self._expires if isinstance(each, JobEvent)]


def _fits(events: list[JobEvent], wanted: JobFilter) -> bool:
    return (
        wanted.table_id in (None, events[0].table_id)
        and (wanted.task_id is None or any(each.task_id == wanted.task_id for each in events))
        and (wanted.since is None or any(each.at >= wanted.since for each in events))
        and (wanted.until is None or any(each.at < wanted.until for each in events))
    )


# ---------------------------------------------------------------- batcher store
#
# The batcher's files in dictionaries.


@dataclass(frozen=True, slots=True)
class _Unsent:
    table_id: str
    queue: QueueName


class MemoryBatcherStore:
    """Submitted files in the memory of this process, safe for threads."""

    def __init__(self) -> None:
        self._numbers = count()
        self._files: dict[tuple[str | None, str, str], tuple[int, SubmittedFile]] = {}
        self._unsent: dict[str, _Unsent] = {}
        self._lock = RLock()

    def save(self, files: Sequence[SubmittedFile]) -> None:
        """Keep pending files."""
        with self._lock:
            in_jobs = {
                (each.table_id, each.path, each.received)
                for _, each in self._files.values()
                if each.job_id is not None
            }
            for each in files:
                if (each.table_id, each.path, each.received) in in_jobs:
                    continue
                pending = replace(each, job_id=None)
                self._files[None, each.table_id, each.path] = (next(self._numbers), pending)

    def pending(self) -> list[SubmittedFile]:
        """Return the files without a job, oldest first."""
        return [each for each in self._oldest_first() if each.job_id is None]

    def newest(self) -> Iterator[SubmittedFile]:
        """Yield all files, newest first."""
        return iter(self._oldest_first()[::-1])

    def assign(
        self, job_id: str, files: Sequence[SubmittedFile], queue: QueueName
    ) -> list[SubmittedFile]:
        """Move pending files into a job."""
        assigned: list[SubmittedFile] = []
        with self._lock:
            for each in files:
                number, found = self._files.get((None, each.table_id, each.path), (0, None))
                if found is not None and found == replace(each, job_id=None):
                    del self._files[None, each.table_id, each.path]
                    assigned.append(replace(found, job_id=job_id))
                    self._files[job_id, each.table_id, each.path] = (number, assigned[-1])
            if assigned:
                self._unsent[job_id] = _Unsent(assigned[0].table_id, queue)
        return assigned

    def unsent(self) -> list[UnsentJob]:
        """Return the jobs that were not noted as sent."""
        with self._lock:
            files = self._oldest_first()
            return [
                UnsentJob(
                    job_id=job_id,
                    table_id=job.table_id,
                    queue=job.queue,
                    paths=tuple(each.path for each in files if each.job_id == job_id),
                )
                for job_id, job in self._unsent.items()
            ]

    def note_sent(self, job_id: str) -> None:
        """Note that a job was sent."""
        with self._lock:
            self._unsent.pop(job_id, None)

    def reopen(self, job_id: str, paths: Sequence[str], queue: QueueName) -> int:
        """Note a job as unsent again, with some of its files."""
        with self._lock:
            of_job = [each for _, each in self._files.values() if each.job_id == job_id]
            kept = [each for each in of_job if each.path in paths]
            if not kept or job_id in self._unsent:
                return 0
            self._delete(lambda each: each.job_id == job_id and each.path not in paths)
            self._unsent[job_id] = _Unsent(kept[0].table_id, queue)
            return len(kept)

    def delete_tables_except(self, table_ids: Iterable[str]) -> int:
        """Forget files and unsent jobs of all other tables."""
        kept = set(table_ids)
        with self._lock:
            gone = [job_id for job_id, job in self._unsent.items() if job.table_id not in kept]
            for job_id in gone:
                del self._unsent[job_id]
            return self._delete(lambda each: each.table_id not in kept)

    def delete_pending(self) -> int:
        """Forget files without a job."""
        return self._delete(lambda each: each.job_id is None)

    def delete_expired(self, now: datetime) -> int:
        """Forget files that have expired."""
        return self._delete(lambda each: each.expires < now and each.job_id not in self._unsent)

    def _oldest_first(self) -> list[SubmittedFile]:
        with self._lock:
            numbered = list(self._files.values())
        return [each for _, each in sorted(numbered, key=lambda of: (of[1].received, of[0]))]

    def _delete(self, unwanted: Callable[[SubmittedFile], bool]) -> int:
        with self._lock:
            keys = [key for key, (_, each) in self._files.items() if unwanted(each)]
            for key in keys:
                del self._files[key]
            return len(keys)


class MemoryJobStores:
    """Queues, tracker and batcher store, gone with this object.

    Args:
        settings: How queues deliver; one that is missing has the default settings.
        now: The clock (aware, UTC).
        sleep: Waits for so many seconds.
        new_id: Makes ids of messages and receipts.
    """

    def __init__(
        self,
        settings: Mapping[QueueName, QueueSettings],
        *,
        now: Callable[[], datetime],
        sleep: Callable[[float], None],
        new_id: NewId,
    ) -> None:
        self._tracker, self._batcher = MemoryTracker(), MemoryBatcherStore()
        self._queues = {
            name: MemoryQueue(
                name, settings.get(name, QueueSettings()), now=now, sleep=sleep, new_id=new_id
            )
            for name in QueueName
        }

    are_charged = False
    """Nothing is."""

    @property
    def tracker(self) -> MemoryTracker:
        """The events of jobs and tasks."""
        return self._tracker

    @property
    def batcher(self) -> MemoryBatcherStore:
        """The files that were submitted to the ingest batcher."""
        return self._batcher

    def queue(self, name: QueueName) -> MemoryQueue:
        """Return one of the queues, the same each time."""
        return self._queues[name]

    def close(self) -> None:
        """Do nothing: there is nothing to close."""
