"""The compaction worker: plans jobs of each table in turn, claims a few, runs and commits them.

There is no queue of compactions: the claims in each table's log are the queue. Any number of
workers may run, on any machines. A worker that is killed leaves the claims of a few jobs, which end
with their leases; then any worker takes the files.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from sleeper.errors import InstanceLost, SleeperError
from sleeper.language.failures import ends_process
from sleeper.model.jobs.events import TaskEvent
from sleeper.model.jobs.redelivery import reasons_of
from sleeper.tables.table import Table
from sleeper.workers.job import Interrupted
from sleeper.workers.kinds.compaction_turn import CompactionTurn
from sleeper.workers.worker import WorkerSettings

_LONGEST_PAUSE_S = 900.0
_PAUSED_S = 5.0
_LOST_LEASE = "its worker was killed: its claims were released when their lease ended"
_NO_LIMIT = 1_000_000_000

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Rest:
    """A table whose jobs failed is left alone for a while."""

    pause_s: float
    until_s: float


class CompactionWorker:
    """Compacts the online tables of an instance, until it is stopped.

    Args:
        tables: Returns the tables that are online now.
        record: Gets the events of jobs and of this worker.
        task: The event of this worker's start: its id, machine and process.
        settings: When the worker ends; what they say of messages does not apply.
        every_s: How long it waits when no table has anything to compact; each time it finds
            nothing again it waits twice as long, up to 15 minutes.
        now: The clock (aware, UTC).
        ticks_s: A clock that is never set, in seconds.
        stopped: Asked before each table, and while a job runs.
        paused: Asked before each claim; while it is true, nothing is claimed.
        outdated: Asked before each table; the worker ends when it is true.
        rest: Waits for so many seconds, or until the worker is stopped.
    """

    def __init__(
        self,
        tables: Callable[[], Iterable[Table]],
        *,
        record: Callable[..., None],
        task: TaskEvent,
        settings: WorkerSettings,
        every_s: float,
        now: Callable[[], datetime],
        ticks_s: Callable[[], float],
        stopped: Callable[[], bool],
        paused: Callable[[], bool],
        outdated: Callable[[], bool],
        rest: Callable[[float], object],
    ) -> None:
        self._tables = tables
        self._record = record
        self._task = task
        self._settings = settings
        self._every_s = every_s
        self._now = now
        self._ticks_s = ticks_s
        self._stopped = stopped
        self._paused = paused
        self._outdated = outdated
        self._rest = rest
        self._totals = replace(task, is_finished=True)
        self._resting: dict[str, _Rest] = {}

    def run(self) -> TaskEvent:
        """Compact tables until the worker is stopped; return what it did in all.

        Raises:
            InstanceLost: the instance is no longer what the worker opened.
        """
        self._record(self._task)
        try:
            self._run()
        finally:
            self._totals = replace(self._totals, at=self._now())
            self._record(self._totals)
        return self._totals

    def _run(self) -> None:
        idle_s, pause_s = 0.0, self._every_s
        while not self._stopped() and self._jobs_left() > 0 and not self._outdated():
            paused = self._paused()
            if not paused and self._round():
                idle_s, pause_s = 0.0, self._every_s
                continue
            if self._stopped() or self._settings.until_empty:
                return
            wait_s = _PAUSED_S if paused else pause_s
            if self._settings.idle_max_s is not None:
                wait_s = min(wait_s, self._settings.idle_max_s - idle_s)
            self._rest(wait_s)
            idle_s += wait_s
            if self._settings.is_enough(idle_s):
                return
            if not paused:
                pause_s = max(self._every_s, min(2 * pause_s, _LONGEST_PAUSE_S))

    def _jobs_left(self) -> int:
        most = self._settings.jobs_max
        return _NO_LIMIT if most is None else most - self._totals.jobs

    def _round(self) -> bool:
        """Give each table a turn; return whether a job was done."""
        done = False
        try:
            for table in self._tables():
                if self._stopped() or self._jobs_left() <= 0 or self._outdated():
                    break
                rest = self._resting.get(table.table_id)
                if rest is None or self._ticks_s() >= rest.until_s:
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
            table.table_id,
            task_id=self._task.task_id,
            jobs_max=self._jobs_left(),
            record=self._record,
            now=self._now,
            ticks_s=self._ticks_s,
            stopped=self._stopped,
            paused=self._paused,
            commit_s=lambda: table.last_commit_s,
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
                self._record(replace(turn.failed(job_id, (_LOST_LEASE,)), task_id=None))
        self._count(table, turn)
        failed = failed or bool(turn.failures)
        self._note(table, failed=failed and not turn.done)
        return bool(turn.done)

    def _count(self, table: Table, turn: CompactionTurn) -> None:
        self._totals = replace(
            self._totals,
            jobs=self._totals.jobs + len(turn.done) + len(turn.failures),
            rows_read=self._totals.rows_read + sum(job.rows_read for job in turn.done),
            rows_written=self._totals.rows_written + sum(job.rows_written for job in turn.done),
            busy_s=self._totals.busy_s + turn.busy_s,
        )
        if turn.done:
            files = sum(len(job.job.inputs) for job in turn.done)
            _log.info("%s: %d files became %d", table.name, files, len(turn.done))
        for job in turn.failures:
            about = f"compaction job {job.job.job_id} of leaf {job.job.partition_id[:8]}"
            _log.error("%s: %s failed: %s", table.name, about, job.failure)

    def _note(self, table: Table, *, failed: bool) -> None:
        """Leave a table alone whose jobs all failed, each time for longer."""
        if not failed:
            self._resting.pop(table.table_id, None)
            return
        before = self._resting.get(table.table_id)
        pause_s = self._every_s if before is None else min(2 * before.pause_s, _LONGEST_PAUSE_S)
        self._resting[table.table_id] = _Rest(pause_s, self._ticks_s() + pause_s)
        _log.warning("%s is compacted again in %.0f s: its jobs failed", table.name, pause_s)
