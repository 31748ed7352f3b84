"""The worker: takes pieces of work one by one, and runs them until it is asked to end.

The words:

- A *message* in a queue asks for a *job*. A job is done once, whatever is delivered twice: its id
  tells whether it was done before. Each attempt is a *run*.
- A *task* is a worker as the tracker shows it: it starts, runs jobs, and finishes.
- `Work` is where the jobs of one kind come from, and how the next of them is run: `QueuedJobs`
  here, `Committer` (`kinds/commit.py`) and `Compactions` (`kinds/compaction.py`).

The steps of `Worker.run`, whatever the work is:

1. The tracker gets the start of the task.
2. The worker ends if it is asked to end (`StopSignal`), has run `jobs_max` jobs, or was started
   with properties that were changed since.
3. While the instance is paused, nothing is begun.
4. `Work.run_next` takes the next piece of work and runs it. Then the steps begin again at 2.
5. Where there was no work, the worker waits, or ends if it found none for long enough.
6. The tracker gets the end of the task, and what it did in all.

`QueuedJobs.run_next` receives a message, reads its job, and runs it, while a thread keeps the
message hidden from other workers. The message is deleted when the job is done, or can never be
done and its tracker knows why. A worker that is killed leaves the message where it is: it is
delivered again when its visibility ends.

No message ends the worker. One that cannot be read is rejected, also where its reader fails with an
error that nobody expected; a job that fails with one is FAILED, as with any other. An error of
anything else is logged, and the loop goes on. What ends the worker is what ends its process (Ctrl-C
and `SystemExit`), and an instance that is no longer at its place (`InstanceLost`).
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol, Self

from sleeper.errors import (
    BadRequest,
    InstanceLost,
    PropertiesInvalid,
    ResultsIncomplete,
    SleeperError,
    StorageFailed,
    ends_process,
)
from sleeper.jobs.event_recorder import EventRecorder, MessageEvents, RunEvents
from sleeper.model.formats.message_json import id_in_message
from sleeper.model.jobs.events import UNKNOWN_TABLE, JobEvent, JobEventType, TaskEvent
from sleeper.model.jobs.kinds import JobKind
from sleeper.model.jobs.messages import QueueSettings, ReceivedMessage
from sleeper.model.jobs.redelivery import plan_redelivery, reasons_of
from sleeper.ports.clock import Clock
from sleeper.ports.ids import NewId
from sleeper.ports.jobs import JobQueue
from sleeper.workers.job import (
    Job,
    JobDeferred,
    JobOutcome,
    JobReader,
    MessageRejected,
    RunContext,
)
from sleeper.workers.stop_signal import Interrupted, StopSignal

_log = logging.getLogger(__name__)

_WAIT_AFTER_FAILURE_S = 5.0
_FAILURES_MAX = 3
_PAUSED_S = 5.0
_BETWEEN_LOOKS_S = 1.0  # at several queues, none of which may be waited at
_OTHER_TABLE = (
    "Table not found: it was renamed or deleted since this message was accepted, and another one "
    "has its name now"
)
_NO_LIMIT = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """How a worker takes messages.

    Attributes:
        wait_s: How long one look at a queue lasts. A worker without a job that is asked to end
            does so after this time at most.
        keepalive_s: How often the visibility of a message is extended while its job runs.
        retry_first_s: How long a job waits after its first failure.
        retry_max_s: How long it waits after a failure, at most.
        jobs_max: The worker ends after so many jobs; None for no end.
        until_empty: Whether it ends when a look finds no message.
        idle_max_s: The worker ends when it found no message for so long; None for no end.
        is_reported: Whether the tracker shows the worker itself, beside its jobs.
    """

    wait_s: float = 1.0
    keepalive_s: float = 300.0
    retry_first_s: float = 10.0
    retry_max_s: float = 900.0
    jobs_max: int | None = None
    until_empty: bool = False
    idle_max_s: float | None = None
    is_reported: bool = True

    def is_enough(self, idle_s: float) -> bool:
        """Return whether a worker that found no message for so long ends."""
        return self.until_empty or (self.idle_max_s is not None and idle_s >= self.idle_max_s)


class WorkerControl:
    """When a worker ends or pauses, and what it did so far. The loop and its work share it.

    Args:
        settings: When the worker ends by itself.
        stop: Asks it to end.
        is_paused: Returns whether the instance is paused.
        is_outdated: Returns whether another worker is to take its place. A job that runs is
            finished first.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        stop: StopSignal,
        *,
        is_paused: Callable[[], bool] = lambda: False,
        is_outdated: Callable[[], bool] = lambda: False,
    ) -> None:
        self.settings = settings
        self.stop = stop
        self.is_paused = is_paused
        self.jobs, self.rows_read, self.rows_written, self.busy_s = 0, 0, 0, 0.0
        self._is_outdated = is_outdated

    @property
    def jobs_left(self) -> int:
        """How many more jobs it may run."""
        most = self.settings.jobs_max
        return _NO_LIMIT if most is None else max(0, most - self.jobs)

    def is_over(self) -> bool:
        """Return whether it begins nothing more."""
        return self.stop.is_set() or self.jobs_left == 0 or self._is_outdated()

    def count(
        self, jobs: int = 1, *, rows_read: int = 0, rows_written: int = 0, busy_s: float = 0.0
    ) -> None:
        """Add runs of jobs that ended, well or badly."""
        self.jobs += jobs
        self.rows_read += rows_read
        self.rows_written += rows_written
        self.busy_s += busy_s


@dataclass(frozen=True, slots=True)
class TaskProcess:
    """The process of a task, as the tracker shows it.

    Attributes:
        host: The machine.
        pid: The process id there.
    """

    host: str
    pid: int

    @classmethod
    def this(cls) -> Self:
        """Return this process."""
        return cls(os.uname().nodename, os.getpid())

    def task(self, kind: JobKind, task_id: str, at: datetime) -> TaskEvent:
        """Return the start of a task in this process."""
        return TaskEvent(
            kind=kind, task_id=task_id, at=at, is_finished=False, host=self.host, pid=self.pid
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleWait:
    """How a worker waits for work.

    Attributes:
        look_s: How long a look that finds nothing takes by itself.
        first_s: How long it waits after such a look.
        max_s: Each wait is twice as long as the last, up to so many seconds.
    """

    look_s: float = 0.0
    first_s: float = 0.0
    max_s: float = 0.0


class Work(Protocol):
    """Where the jobs of one kind come from, and how the next of them is run."""

    @property
    def source(self) -> str:
        """Where they come from, for the log."""
        ...

    @property
    def idle_wait(self) -> IdleWait:
        """How a worker waits for them."""
        ...

    def run_next(self) -> bool:
        """Take the next piece of work and run it; return whether there was any.

        Raises:
            InstanceLost: the instance is no longer what was opened. What was taken is given back.
            StorageFailed: its source cannot be used now.
        """
        ...


class Recorder(Protocol):
    """Gets the events of jobs and tasks."""

    def record(self, *events: JobEvent | TaskEvent) -> None:
        """Write events of one kind of job. Never raises our errors."""
        ...


class Worker:
    """Runs one kind of work until it is asked to end.

    Args:
        work: The work.
        control: Says when it ends or pauses, and counts what is done.
        task: The event of this worker's start: its id, machine and process.
        recorder: Gets the start and the end.
        clock: The time.
    """

    def __init__(
        self,
        work: Work,
        control: WorkerControl,
        *,
        task: TaskEvent,
        recorder: Recorder,
        clock: Clock,
    ) -> None:
        self._work = work
        self._control = control
        self._task = task
        self._recorder = recorder
        self._clock = clock

    def run(self) -> TaskEvent:
        """Take work until the worker is to end; return what it did in all.

        Raises:
            InstanceLost: the instance is no longer what the worker opened. The message of its job
                goes back to its queue.
            StorageFailed: the source of the work could not be used three times, and the worker is
                one that ends when there is no work.
        """
        self._report(self._task)
        try:
            self._run()
        finally:
            control = self._control
            ended = replace(
                self._task,
                is_finished=True,
                at=self._clock.now(),
                jobs=control.jobs,
                rows_read=control.rows_read,
                rows_written=control.rows_written,
                busy_s=control.busy_s,
            )
            self._report(ended)
        return ended

    def _report(self, event: TaskEvent) -> None:
        if self._control.settings.is_reported:
            self._recorder.record(event)

    def _run(self) -> None:
        control, settings, wait = self._control, self._control.settings, self._work.idle_wait
        idle_s, wait_s, failures = 0.0, wait.first_s, 0
        while not control.is_over():
            is_paused = control.is_paused()
            try:
                has_worked = not is_paused and self._work.run_next()
            except BaseException as failure:
                failures += 1
                if not self._goes_on(failure, failures):
                    raise
                control.stop.wait(_WAIT_AFTER_FAILURE_S)
                idle_s = 0.0
                continue
            failures = 0
            if has_worked:
                idle_s, wait_s = 0.0, wait.first_s
                continue
            idle_s += 0.0 if is_paused else wait.look_s
            if control.stop.is_set() or settings.is_enough(idle_s):
                return
            next_s = _PAUSED_S if is_paused else wait_s
            if settings.idle_max_s is not None:
                next_s = min(next_s, settings.idle_max_s - idle_s)
            if next_s > 0:
                control.stop.wait(next_s)
            idle_s += next_s
            if settings.is_enough(idle_s):
                return
            if not is_paused:
                wait_s = max(wait.first_s, min(2 * wait_s, wait.max_s))

    def _goes_on(self, failure: BaseException, failures: int) -> bool:
        """Log that the source of the work failed so many times; return whether to try it again."""
        is_ours = isinstance(failure, SleeperError)
        is_lasting = is_ours and not isinstance(failure, StorageFailed)
        if ends_process(failure) or is_lasting or isinstance(failure, InstanceLost):
            return False
        trace = None if is_ours else failure
        _log.error("%s cannot be used now: %s", self._work.source, failure, exc_info=trace)
        return not self._control.settings.until_empty or failures < _FAILURES_MAX


@dataclass(frozen=True, slots=True)
class WorkQueue:
    """A queue, what reads its messages, and how it delivers."""

    reader: JobReader
    queue: JobQueue
    settings: QueueSettings


class QueuedJobs:
    """The jobs that messages in some queues ask for.

    Args:
        queues: Where messages come from; looked at in turn.
        control: Says when the worker ends, and counts what is done.
        recorder: Gets the events of jobs.
        task_id: The worker.
        new_id: Makes the ids of runs.
    """

    def __init__(
        self,
        queues: Sequence[WorkQueue],
        control: WorkerControl,
        *,
        recorder: EventRecorder,
        task_id: str,
        new_id: NewId,
    ) -> None:
        self._queues = tuple(queues)
        self._control = control
        self._settings = control.settings
        self._recorder = recorder
        self._task_id = task_id
        self._new_id = new_id
        self._is_alone = len(self._queues) == 1

    @property
    def source(self) -> str:
        """The kind of queue."""
        return f"the {self._queues[0].reader.kind} queue"

    @property
    def idle_wait(self) -> IdleWait:
        """A single queue is waited at; several are looked at once a second."""
        if self._is_alone:
            return IdleWait(look_s=self._settings.wait_s)
        return IdleWait(first_s=_BETWEEN_LOOKS_S, max_s=_BETWEEN_LOOKS_S)

    def run_next(self) -> bool:
        """Take a message from any queue and run its job; return whether there was one.

        Raises:
            StorageFailed: a queue cannot be used now.
        """
        wait_s = self._settings.wait_s if self._is_alone else 0.0
        for source in self._queues:
            if self._control.stop.is_set():
                return False
            messages = source.queue.receive(1, wait_s=wait_s)
            for message in messages:
                self._handle(source, message)
            if messages:
                return True
        return False

    def _handle(self, source: WorkQueue, message: ReceivedMessage) -> None:
        """Read a message and run its job.

        Raises:
            StorageFailed: the queue cannot be reached; the message comes again.
        """
        try:
            job = source.reader.read(message)
        except MessageRejected as rejection:
            self._reject(source, message, rejection)
            return
        except JobDeferred as deferral:
            self._defer(source, message, deferral)
            return
        except InstanceLost:
            source.queue.release(message.receipt, counted=False)
            raise
        except SleeperError as failure:
            self._read_failed(source, message, failure)
            return
        except BaseException as failure:
            if ends_process(failure):
                raise
            _log.exception(
                "%s message %s was read with an unexpected error",
                source.reader.kind,
                message.message_id,
            )
            self._read_failed(source, message, failure)
            return
        known = self._recorder.of_message(source.reader.kind, job.job_id, message.message_id)
        if job.is_tracked and known.table_id not in (None, job.table_id):
            self._reject(source, message, MessageRejected(job.job_id, (_OTHER_TABLE,)))
            return
        self._run_job(source, message, job, known)

    def _read_failed(
        self, source: WorkQueue, message: ReceivedMessage, failure: BaseException
    ) -> None:
        """Put back a message that may be read later; reject one that never can be.

        What the machine lacked may pass: memory, or what an `OSError` says. Any other unexpected
        error follows from the message.
        """
        if isinstance(failure, SleeperError):
            is_wrong = isinstance(failure, BadRequest) and not isinstance(
                failure, PropertiesInvalid
            )
        else:
            may_pass = isinstance(failure, MemoryError | OSError)
            is_wrong = not may_pass or message.receives >= source.settings.receives_max
        job_id = id_in_message(message.body) or message.message_id
        if is_wrong:
            self._reject(source, message, MessageRejected(job_id, reasons_of(failure)))
            return
        is_final = self._give_back(source, message, failure)
        if source.reader.is_tracked:
            why = reasons_of(failure)
            self._record_unread(source, message, job_id, why, is_final=is_final)

    def _reject(
        self, source: WorkQueue, message: ReceivedMessage, rejection: MessageRejected
    ) -> None:
        _log.warning("rejected %s job %s: %s", source.reader.kind, rejection.job_id, rejection)
        if rejection.is_dead_letter:
            source.queue.bury(message.receipt, str(rejection))
            return
        kind, job_id = source.reader.kind, rejection.job_id
        known = self._recorder.of_message(kind, job_id, message.message_id)
        event = JobEvent(
            kind=kind,
            table_id=known.table_id or rejection.table_id,  # the table that it was accepted for
            job_id=job_id,
            type=JobEventType.REJECTED,
            at=self._recorder.now(),
            reasons=rejection.reasons,
            message=message.body,
            message_id=message.message_id,
            attempt=_attempt(message, known),
        )
        self._recorder.record(event)
        source.queue.delete([message.receipt])

    def _record_unread(
        self,
        source: WorkQueue,
        message: ReceivedMessage,
        job_id: str,
        reasons: tuple[str, ...],
        *,
        is_final: bool,
    ) -> None:
        """Record that the job of a message could not be looked at."""
        kind = source.reader.kind
        known = self._recorder.of_message(kind, job_id, message.message_id)
        failed = RunEvents(
            kind=kind,
            table_id=known.table_id or source.reader.table_id_of(message) or UNKNOWN_TABLE,
            job_id=job_id,
            run_id=self._new_id(),
            task_id=self._task_id,
            message_id=message.message_id,
            attempt=_attempt(message, known),
        ).failed(self._recorder.now(), reasons, is_final=is_final)
        self._recorder.record(failed)

    def _defer(self, source: WorkQueue, message: ReceivedMessage, deferral: JobDeferred) -> None:
        about = f"{source.reader.kind} message {message.message_id}"
        _log.info("%s waits for %.0f s: %s", about, deferral.delay_s, deferral)
        source.queue.release(message.receipt, deferral.delay_s, counted=False)

    def _run_job(
        self, source: WorkQueue, message: ReceivedMessage, job: Job, known: MessageEvents
    ) -> None:
        events = self._run_events(source.reader.kind, job, message, known)
        started = self._recorder.now()
        try:
            outcome = self._outcome(source, message, job, events)
        except Interrupted:
            _log.info("job %s goes back to its queue: the worker ends", job.job_id)
            why = ("the worker was asked to end; the job went back to its queue",)
            self._record(job, events.failed(self._recorder.now(), why))
            source.queue.release(message.receipt, counted=False)
            return
        except InstanceLost as failure:
            self._record(job, events.failed(self._recorder.now(), reasons_of(failure)))
            source.queue.release(message.receipt, counted=False)
            raise
        except JobDeferred as deferral:
            self._record(job, events.failed(self._recorder.now(), (str(deferral),)))
            self._defer(source, message, deferral)
            return
        except BaseException as failure:
            if ends_process(failure):
                raise
            if not isinstance(failure, SleeperError):
                _log.exception("job %s failed with an unexpected error", job.job_id)
            is_final = self._give_back(source, message, failure)
            sent = failure.rows_sent if isinstance(failure, ResultsIncomplete) else None
            failed = events.failed(
                self._recorder.now(), reasons_of(failure), is_final=is_final, rows_written=sent
            )
            self._record(job, failed)
            self._count(started)
            return
        if outcome.is_finished:
            self._record(job, _finished(events, self._recorder.now(), outcome))
            self._count(started, outcome)
        else:
            self._count(started, self._told_by_driver(events))
        source.queue.delete([message.receipt])

    def _outcome(
        self, source: WorkQueue, message: ReceivedMessage, job: Job, events: RunEvents
    ) -> JobOutcome:
        """Run a job, unless its work was done before."""
        before = job.done_before()
        if before is not None:
            _log.info("job %s had been done before", job.job_id)
            self._warn_of_other_input(source.reader.kind, job)
            return before
        now = self._recorder.now()
        accepted = events.accepted(message.sent)
        self._record(job, *([accepted] if job.has_driver else [accepted, events.started(now)]))
        run = RunContext(
            run_id=events.run_id, task_id=events.task_id, check=self._control.stop.check
        )
        with kept_hidden(
            source.queue,
            message.receipt,
            every_s=self._settings.keepalive_s,
            visibility_s=source.settings.visibility_s,
        ):
            outcome = job.run(run)
        done = outcome if outcome.is_finished else self._told_by_driver(events)
        if job.is_tracked and done is not None:
            _log_done(source.reader.kind, job, done, self._recorder.now() - now)
        return outcome

    def _told_by_driver(self, events: RunEvents) -> JobOutcome | None:
        """Return what the driver of a run did that has ended; None where none told it yet."""
        known = self._recorder.known(events.kind, events.job_id)
        ended = (
            event
            for event in known
            if event.run_id == events.run_id and event.type is JobEventType.FINISHED
        )
        return next(
            (
                JobOutcome(
                    rows_read=event.rows_read or 0,
                    rows_written=event.rows_written or 0,
                    files=event.files or 0,
                    transaction=event.transaction,
                    is_committed=event.is_committed,
                )
                for event in ended
            ),
            None,
        )

    def _give_back(
        self, source: WorkQueue, message: ReceivedMessage, failure: BaseException
    ) -> bool:
        """Put a message back for another try, or among the dead letters: then return True."""
        plan = plan_redelivery(
            failure,
            receives=message.receives,
            receives_max=source.settings.receives_max,
            first_s=self._settings.retry_first_s,
            max_s=self._settings.retry_max_s,
        )
        about = f"{source.reader.kind} message {message.message_id}"
        if plan.delay_s is None:
            _log.error("%s becomes a dead letter: %s", about, plan.reason)
            source.queue.bury(message.receipt, plan.reason)
            return True
        why = "; because: ".join(reasons_of(failure))
        _log.warning("%s comes again in %.0f s: %s", about, plan.delay_s, why)
        source.queue.release(message.receipt, plan.delay_s)
        return False

    def _warn_of_other_input(self, kind: JobKind, job: Job) -> None:
        """Warn where the job that was done under this id had other input."""
        if job.input_hash is None:
            return
        known = self._recorder.input_hashes(kind, job.table_id, job.job_id)
        if known and job.input_hash not in known:
            _log.warning(
                "job id %s was used before for other files: nothing of the %s files of this "
                "message was read. Submit them again with another id.",
                job.job_id,
                job.input_files,
            )

    def _run_events(
        self, kind: JobKind, job: Job, message: ReceivedMessage, known: MessageEvents
    ) -> RunEvents:
        return RunEvents(
            kind=kind,
            table_id=job.table_id,
            job_id=job.job_id,
            run_id=self._new_id(),
            task_id=self._task_id,
            input_files=job.input_files,
            input_hash=job.input_hash,
            message_id=message.message_id,
            attempt=_attempt(message, known),
        )

    def _record(self, job: Job, *events: JobEvent) -> None:
        if job.is_tracked:
            self._recorder.record(*events)

    def _count(self, started: datetime, outcome: JobOutcome | None = None) -> None:
        done = outcome or JobOutcome()
        busy_s = (self._recorder.now() - started).total_seconds()
        self._control.count(rows_read=done.rows_read, rows_written=done.rows_written, busy_s=busy_s)


def _attempt(message: ReceivedMessage, known: MessageEvents) -> int:
    """Return the number of an attempt; where the tracker could not be asked, the queue's count."""
    return max(known.next_attempt, message.receives)


@contextmanager
def kept_hidden(
    queue: JobQueue, receipt: str, *, every_s: float, visibility_s: float
) -> Iterator[None]:
    """Extend a message's visibility from a thread until the block ends.

    When the receipt is stale another worker has the message. The job continues: whichever commits
    second is recognised by its id.

    Args:
        queue: The queue.
        receipt: The delivery.
        every_s: Seconds between two extensions.
        visibility_s: For how long each hides the message.
    """
    ended = threading.Event()
    thread = threading.Thread(
        target=_extend_until,
        args=(ended, queue, receipt, every_s, visibility_s),
        name="visibility",
        daemon=True,
    )
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _extend_until(
    ended: threading.Event, queue: JobQueue, receipt: str, every_s: float, visibility_s: float
) -> None:
    while not ended.wait(every_s):
        try:
            if not queue.extend(receipt, visibility_s):
                _log.warning("the message was delivered to another worker while its job runs here")
                return
        except StorageFailed as failure:
            _log.warning("a message's visibility cannot be extended now: %s", failure)


def _log_done(kind: JobKind, job: Job, outcome: JobOutcome, took: timedelta) -> None:
    _log.info(
        "%s job %s of table %s took %.1f s: %d rows read, %d written, transaction %s",
        kind,
        job.job_id,
        job.table_id,
        took.total_seconds(),
        outcome.rows_read,
        outcome.rows_written,
        outcome.transaction or ("-" if outcome.is_committed else "of the committer"),
    )


def _finished(events: RunEvents, at: datetime, outcome: JobOutcome) -> JobEvent:
    return events.finished(
        at,
        files=outcome.files,
        rows_read=outcome.rows_read,
        rows_written=outcome.rows_written,
        transaction=outcome.transaction,
        locations=outcome.locations,
        platform=outcome.platform,
        commit_s=outcome.commit_s,
        is_committed=outcome.is_committed,
    )
