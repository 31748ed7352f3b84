"""The worker loop: takes messages one by one and runs their jobs, whatever their kind.

A message is deleted when its job is done, or can never be done and its tracker knows why. Killed
at any point, the worker leaves the message where it is: it is delivered again when its visibility
ends, and the job's id tells whether its work was done.

No message ends the worker. One that cannot be read is rejected, also where its reader fails with an
error that nobody expected; a job that fails with one is FAILED, as with any other. Only what ends
the process ends the worker: Ctrl-C, and `SystemExit`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sleeper.errors import (
    BadRequest,
    InstanceLost,
    PropertiesInvalid,
    ResultsIncomplete,
    SleeperError,
    StorageFailed,
)
from sleeper.jobs.event_recorder import EventRecorder, RunEvents
from sleeper.language.failures import ends_process
from sleeper.model.formats.message_json import id_in_message
from sleeper.model.jobs.events import JobEvent, JobEventType, TaskEvent
from sleeper.model.jobs.kinds import JobKind
from sleeper.model.jobs.messages import QueueSettings, ReceivedMessage
from sleeper.model.jobs.redelivery import plan_redelivery, reasons_of
from sleeper.ports.ids import NewId
from sleeper.ports.jobs import JobQueue
from sleeper.workers.job import (
    Interrupted,
    Job,
    JobDeferred,
    JobOutcome,
    JobReader,
    MessageRejected,
    RunContext,
)
from sleeper.workers.visibility import kept_hidden

_log = logging.getLogger(__name__)

_WAIT_AFTER_FAILURE_S = 5.0
_FAILURES_MAX = 3
_BETWEEN_LOOKS_S = 1.0  # at several queues, none of which may be waited at


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


@dataclass(frozen=True, slots=True)
class WorkQueue:
    """A queue, what reads its messages, and how it delivers."""

    reader: JobReader
    queue: JobQueue
    settings: QueueSettings


class Worker:
    """One worker: takes the messages of some queues and runs their jobs, until it is stopped.

    Args:
        queues: Where messages come from; looked at in turn.
        recorder: Gets the events of jobs and of this worker.
        task: The event of this worker's start: its id, machine and process.
        settings: How messages are taken.
        stopped: Asked before each message, and while a job runs.
        paused: Asked before each message; while it is true, none is taken.
        outdated: Asked before each message; the worker ends when true. A running job is
            finished first.
        rest: Waits for so many seconds, or until the worker is stopped.
        new_id: Makes the ids of runs.
    """

    def __init__(
        self,
        queues: Sequence[WorkQueue],
        *,
        recorder: EventRecorder,
        task: TaskEvent,
        settings: WorkerSettings,
        stopped: Callable[[], bool],
        paused: Callable[[], bool],
        outdated: Callable[[], bool],
        rest: Callable[[float], object],
        new_id: NewId,
    ) -> None:
        self._queues = tuple(queues)
        self._recorder = recorder
        self._task = task
        self._settings = settings
        self._stopped = stopped
        self._paused = paused
        self._outdated = outdated
        self._rest = rest
        self._new_id = new_id
        self._totals = replace(task, is_finished=True)
        self._failures = 0

    def run(self) -> TaskEvent:
        """Take messages until the worker is stopped; return what it did in all.

        Raises:
            InstanceLost: the instance is no longer what the worker opened. The message of its job
                goes back to its queue.
        """
        self._report(self._task)
        idle_s = 0.0
        try:
            while not self._stopped() and self._totals.jobs != self._settings.jobs_max:
                if self._outdated():
                    break
                if self._run_next():
                    idle_s = 0.0
                    continue
                idle_s += self._settings.wait_s
                if self._settings.is_enough(idle_s):
                    break
        finally:
            self._totals = replace(self._totals, at=self._recorder.now())
            self._report(self._totals)
        return self._totals

    def _report(self, event: TaskEvent) -> None:
        if self._settings.is_reported:
            self._recorder.record(event)

    def _run_next(self) -> bool:
        """Take a message from any queue and handle it; False where there was none.

        Raises:
            StorageFailed: a queue could not be used three times, and the worker is one that ends
                when its queue is empty.
        """
        if self._paused():
            self._rest(self._settings.wait_s)
            return False
        wait_s = self._settings.wait_s if len(self._queues) == 1 else 0.0
        for source in self._queues:
            if self._stopped():
                return True
            try:
                messages = source.queue.receive(1, wait_s=wait_s)
                for message in messages:
                    self._handle(source, message)
            except InstanceLost:
                raise
            except StorageFailed as failure:
                _log.error("the %s queue cannot be used now: %s", source.reader.kind, failure)
                self._failures += 1
                if self._settings.until_empty and self._failures == _FAILURES_MAX:
                    raise
                self._rest(_WAIT_AFTER_FAILURE_S)
                return True
            self._failures = 0
            if messages:
                return True
        if len(self._queues) > 1 and not self._settings.until_empty:
            self._rest(_BETWEEN_LOOKS_S)
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
        self._run_job(source, message, job)

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
        if not is_wrong:
            self._give_back(source, message, failure)
            return
        job_id = id_in_message(message.body) or message.message_id
        self._reject(source, message, MessageRejected(job_id, reasons_of(failure)))

    def _reject(
        self, source: WorkQueue, message: ReceivedMessage, rejection: MessageRejected
    ) -> None:
        _log.warning("rejected %s job %s: %s", source.reader.kind, rejection.job_id, rejection)
        if rejection.is_dead_letter:
            source.queue.bury(message.receipt, str(rejection))
            return
        event = JobEvent(
            kind=source.reader.kind,
            table_id=rejection.table_id,
            job_id=rejection.job_id,
            type=JobEventType.REJECTED,
            at=self._recorder.now(),
            reasons=rejection.reasons,
            message=message.body,
        )
        self._recorder.record(event)
        source.queue.delete([message.receipt])

    def _defer(self, source: WorkQueue, message: ReceivedMessage, deferral: JobDeferred) -> None:
        about = f"{source.reader.kind} message {message.message_id}"
        _log.info("%s waits for %.0f s: %s", about, deferral.delay_s, deferral)
        source.queue.release(message.receipt, deferral.delay_s, counted=False)

    def _run_job(self, source: WorkQueue, message: ReceivedMessage, job: Job) -> None:
        events = _run_events(source.reader.kind, job, self._new_id(), self._task.task_id)
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
        run = RunContext(run_id=events.run_id, task_id=events.task_id, check=self._check)
        with kept_hidden(
            source.queue,
            message.receipt,
            every_s=self._settings.keepalive_s,
            visibility_s=source.settings.visibility_s,
        ):
            outcome = job.run(run)
        if job.is_tracked:
            _log_done(source.reader.kind, job, outcome, self._recorder.now() - now)
        return outcome

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

    def _check(self) -> None:
        if self._stopped():
            raise Interrupted

    def _record(self, job: Job, *events: JobEvent) -> None:
        if job.is_tracked:
            self._recorder.record(*events)

    def _count(self, started: datetime, outcome: JobOutcome | None = None) -> None:
        done = outcome or JobOutcome()
        self._totals = replace(
            self._totals,
            jobs=self._totals.jobs + 1,
            rows_read=self._totals.rows_read + done.rows_read,
            rows_written=self._totals.rows_written + done.rows_written,
            busy_s=self._totals.busy_s + (self._recorder.now() - started).total_seconds(),
        )


def _run_events(kind: JobKind, job: Job, run_id: str, task_id: str) -> RunEvents:
    return RunEvents(
        kind=kind,
        table_id=job.table_id,
        job_id=job.job_id,
        run_id=run_id,
        task_id=task_id,
        input_files=job.input_files,
        input_hash=job.input_hash,
    )


def _log_done(kind: JobKind, job: Job, outcome: JobOutcome, took: timedelta) -> None:
    _log.info(
        "%s job %s of table %s took %.1f s: %d rows read, %d written, transaction %s",
        kind,
        job.job_id,
        job.table_id,
        took.total_seconds(),
        outcome.rows_read,
        outcome.rows_written,
        outcome.transaction or "-",
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
