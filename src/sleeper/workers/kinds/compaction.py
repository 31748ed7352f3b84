"""Compactions: plans jobs of each table in turn, claims a few, runs and commits them.

There is no queue of compactions: the claims in each table's log are the queue. Any number of
workers may run, on any machines. A worker that is killed leaves the claims of a few jobs, which end
with their leases; then any worker takes the files.

One piece of work is a round: each online table gets a turn. In a turn (`Table.compact`) a worker
plans jobs, claims the files of one, runs it, commits it, and claims the next, for a minute at most,
so that a large table does not keep others waiting. What it has claimed and not committed when it
is to end is given back. A table whose jobs all failed gets no turn for a while.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from sleeper.errors import InstanceLost, SleeperError, ends_process
from sleeper.jobs.event_recorder import RunEvents
from sleeper.model.formats.compaction_job import CompactionJob
from sleeper.model.jobs.events import JobEvent, JobEventType
from sleeper.model.jobs.kinds import JobKind
from sleeper.model.jobs.redelivery import reasons_of
from sleeper.ports.clock import Clock
from sleeper.tables.compact import CompactionJobResult
from sleeper.tables.table import Table
from sleeper.workers.stop_signal import Interrupted
from sleeper.workers.worker import IdleWait, Recorder, WorkerControl

TURN_S = 60.0
"""How long a worker claims jobs of one table before it looks at the others."""

_LONGEST_PAUSE_S = 900.0
_LOST_LEASE = "its worker was killed: its claims were released when their lease ended"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Retry:
    """When a table whose jobs failed gets its next turn."""

    pause_s: float
    due_s: float


class Compactions:
    """The compactions that the online tables of an instance want.

    Args:
        tables: Returns the tables that are online now.
        control: Says when the worker ends or pauses, and counts what is done.
        task_id: The worker.
        recorder: Gets the events of jobs.
        clock: The time.
        every_s: How long the worker waits when no table has anything to compact; each time it
            finds nothing again it waits twice as long, up to 15 minutes.
    """

    source = "the tables"

    def __init__(
        self,
        tables: Callable[[], Iterable[Table]],
        control: WorkerControl,
        *,
        task_id: str,
        recorder: Recorder,
        clock: Clock,
        every_s: float,
    ) -> None:
        self._tables = tables
        self._control = control
        self._task_id = task_id
        self._recorder = recorder
        self._clock = clock
        self._every_s = every_s
        self._retries: dict[str, _Retry] = {}

    @property
    def idle_wait(self) -> IdleWait:
        """Tables that have nothing to compact are looked at more and more rarely."""
        return IdleWait(first_s=self._every_s, max_s=_LONGEST_PAUSE_S)

    def run_next(self) -> bool:
        """Give each table a turn; return whether a job was done.

        Raises:
            InstanceLost: the instance is no longer what the worker opened.
        """
        done = False
        try:
            for table in self._tables():
                if self._control.is_over():
                    break
                retry = self._retries.get(table.table_id)
                if retry is None or self._clock.ticks_s() >= retry.due_s:
                    done = self._turn(table) or done
        except InstanceLost:
            raise
        except SleeperError as failure:
            _log.error("the tables cannot be read now: %s", failure)
        except BaseException as failure:
            if ends_process(failure):
                raise
            _log.exception("the tables cannot be read now: an unexpected error")
        return done

    def _turn(self, table: Table) -> bool:
        """Compact a table for a while; return whether a job was done."""
        turn = CompactionTurn(
            table, self._control, task_id=self._task_id, recorder=self._recorder, clock=self._clock
        )
        failed = False
        try:
            summary = table.compact(watch=turn)
        except Interrupted:
            turn.give_back(("the worker was asked to end; its claims were given back",))
            _log.info("%s: claims were given back: the worker ends", table.name)
        except SleeperError as failure:
            turn.give_back(reasons_of(failure))
            if isinstance(failure, InstanceLost):
                raise
            _log.error("%s: compact failed: %s", table.name, failure)
            failed = True
        except BaseException as failure:
            turn.give_back(reasons_of(failure))
            if ends_process(failure):
                raise
            _log.exception("%s: compact failed with an unexpected error", table.name)
            failed = True
        else:
            turn.give_back(("its claims were given back before it began",))
            for job_id in summary.released:  # another task ran it
                lost = turn.failed(job_id, (_LOST_LEASE,))
                self._recorder.record(replace(lost, task_id=None))
        self._count(table, turn)
        failed = failed or bool(turn.failures)
        self._note_failure(table, failed=failed and not turn.done)
        return bool(turn.done)

    def _count(self, table: Table, turn: CompactionTurn) -> None:
        self._control.count(
            len(turn.done) + len(turn.failures),
            rows_read=sum(job.rows_read for job in turn.done),
            rows_written=sum(job.rows_written for job in turn.done),
            busy_s=turn.busy_s,
        )
        if turn.done:
            files = sum(len(job.job.inputs) for job in turn.done)
            _log.info("%s: %d files became %d", table.name, files, len(turn.done))
        for job in turn.failures:
            about = f"compaction job {job.job.job_id} of leaf {job.job.partition_id[:8]}"
            _log.error("%s: %s failed: %s", table.name, about, job.failure)

    def _note_failure(self, table: Table, *, failed: bool) -> None:
        """Leave a table alone whose jobs all failed, each time for longer."""
        if not failed:
            self._retries.pop(table.table_id, None)
            return
        before = self._retries.get(table.table_id)
        pause_s = self._every_s if before is None else min(2 * before.pause_s, _LONGEST_PAUSE_S)
        self._retries[table.table_id] = _Retry(pause_s, self._clock.ticks_s() + pause_s)
        _log.warning("%s is compacted again in %.0f s: its jobs failed", table.name, pause_s)


class CompactionTurn:
    """Follows the jobs that a worker runs for one table, as `Table.compact` calls it.

    A job is planned anew after each failure, with a new id: so one id has one run, whose id it is,
    and each failure is the job's end.

    Args:
        table: The table.
        control: Says when the worker ends or pauses.
        task_id: The worker.
        recorder: Gets the events of jobs.
        clock: The time.

    Attributes:
        done: Jobs that were committed.
        failures: Jobs that failed.
        busy_s: Seconds from the start of each job to its end.
    """

    def __init__(
        self,
        table: Table,
        control: WorkerControl,
        *,
        task_id: str,
        recorder: Recorder,
        clock: Clock,
    ) -> None:
        self._table = table
        self._control = control
        self._task_id = task_id
        self._recorder = recorder
        self._clock = clock
        self._jobs_left = control.jobs_left
        self._begun_s = self._started_s = clock.ticks_s()
        self._open: dict[str, CompactionJob] = {}
        self.done: list[CompactionJobResult] = []
        self.failures: list[CompactionJobResult] = []
        self.busy_s = 0.0

    def room(self) -> int:
        """Return how many more jobs may be claimed: none once the turn is over."""
        is_over = (
            self._control.stop.is_set()
            or self._clock.ticks_s() - self._begun_s >= TURN_S
            or self._control.is_paused()
        )
        return 0 if is_over else self._jobs_left

    def claimed(self, jobs: Sequence[CompactionJob]) -> None:
        """Record jobs as created: their claims are committed (rule TRK-4)."""
        self._jobs_left -= len(jobs)
        self._open |= {job.job_id: job for job in jobs}
        created = [
            JobEvent(
                kind=JobKind.COMPACTION,
                table_id=self._table.table_id,
                job_id=job.job_id,
                type=JobEventType.CREATED,
                at=self._clock.now(),
                input_files=len(job.inputs),
                partition_id=job.partition_id,
            )
            for job in jobs
        ]
        self._recorder.record(*created)

    def started(self, job: CompactionJob) -> None:
        """Record that a job runs."""
        self._started_s = self._clock.ticks_s()
        self._recorder.record(
            self._events(job.job_id).started(self._clock.now(), partition_id=job.partition_id)
        )

    def check(self) -> None:
        """End the job where the worker is to end.

        Raises:
            Interrupted: it is to end.
        """
        self._control.stop.check()

    def ended(self, result: CompactionJobResult) -> None:
        """Record the end of a job."""
        job_id = result.job.job_id
        self._open.pop(job_id, None)
        self.busy_s += self._clock.ticks_s() - self._started_s
        self._started_s = self._clock.ticks_s()
        if result.failure is not None:
            self.failures.append(result)
            self._recorder.record(self.failed(job_id, reasons_of(result.failure)))
            return
        self.done.append(result)
        finished = self._events(job_id).finished(
            self._clock.now(),
            files=1,
            rows_read=result.rows_read,
            rows_written=result.rows_written,
            transaction=result.transaction,
            commit_s=self._table.last_commit_s,
        )
        self._recorder.record(finished)

    def give_back(self, reasons: tuple[str, ...]) -> None:
        """Record why the jobs that have not ended never will."""
        self._recorder.record(*(self.failed(job_id, reasons) for job_id in self._open))
        self._open.clear()

    def failed(self, job_id: str, reasons: tuple[str, ...]) -> JobEvent:
        """Return the event of a job that failed, or ended with its worker."""
        return self._events(job_id).failed(self._clock.now(), reasons, is_final=True)

    def _events(self, job_id: str) -> RunEvents:
        return RunEvents(
            kind=JobKind.COMPACTION,
            table_id=self._table.table_id,
            job_id=job_id,
            run_id=job_id,
            task_id=self._task_id,
        )
