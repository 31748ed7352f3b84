"""One turn of a compaction worker at one table: what it may claim, and what the tracker records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from sleeper.jobs.event_recorder import RunEvents
from sleeper.model.formats.compaction_job import CompactionJob
from sleeper.model.jobs.events import JobEvent, JobEventType
from sleeper.model.jobs.kinds import JobKind
from sleeper.model.jobs.redelivery import reasons_of
from sleeper.tables.compact import CompactionJobResult
from sleeper.workers.job import Interrupted

TURN_S = 60.0
"""How long a worker claims jobs of one table before it looks at the others."""


class CompactionTurn:
    """Follows the jobs that a worker runs for one table, as `Table.compact` calls it.

    A job is planned anew after each failure, with a new id: so one id has one run, whose id it is,
    and each failure is the job's end.

    Args:
        table_id: The table.
        task_id: The worker.
        jobs_max: How many jobs it may run.
        record: Gets the events of jobs.
        now: The clock (aware, UTC).
        ticks_s: A clock that is never set, in seconds.
        stopped: Whether the worker is to end: then its job ends at once.
        paused: Whether the instance is paused: then no more jobs are claimed.
        commit_s: Returns how many seconds the table's last commit took.

    Attributes:
        done: Jobs that were committed.
        failures: Jobs that failed.
        busy_s: Seconds from the start of each job to its end.
    """

    def __init__(
        self,
        table_id: str,
        *,
        task_id: str,
        jobs_max: int,
        record: Callable[..., None],
        now: Callable[[], datetime],
        ticks_s: Callable[[], float],
        stopped: Callable[[], bool],
        paused: Callable[[], bool],
        commit_s: Callable[[], float | None],
    ) -> None:
        self._table_id = table_id
        self._task_id = task_id
        self._jobs_left = jobs_max
        self._record = record
        self._now = now
        self._ticks_s = ticks_s
        self._stopped = stopped
        self._paused = paused
        self._commit_s = commit_s
        self._begun_s = self._started_s = ticks_s()
        self._open: dict[str, CompactionJob] = {}
        self.done: list[CompactionJobResult] = []
        self.failures: list[CompactionJobResult] = []
        self.busy_s = 0.0

    def room(self) -> int:
        """Return how many more jobs may be claimed: none once the turn is over."""
        is_over = self._stopped() or self._ticks_s() - self._begun_s >= TURN_S or self._paused()
        return 0 if is_over else self._jobs_left

    def claimed(self, jobs: Sequence[CompactionJob]) -> None:
        """Record jobs as created: their claims are committed (rule TRK-4)."""
        self._jobs_left -= len(jobs)
        self._open |= {job.job_id: job for job in jobs}
        created = [
            JobEvent(
                kind=JobKind.COMPACTION,
                table_id=self._table_id,
                job_id=job.job_id,
                type=JobEventType.CREATED,
                at=self._now(),
                input_files=len(job.inputs),
                partition_id=job.partition_id,
            )
            for job in jobs
        ]
        self._record(*created)

    def started(self, job: CompactionJob) -> None:
        """Record that a job runs."""
        self._started_s = self._ticks_s()
        self._record(self._events(job.job_id).started(self._now(), partition_id=job.partition_id))

    def check(self) -> None:
        """End the job where the worker is to end.

        Raises:
            Interrupted: it is to end.
        """
        if self._stopped():
            raise Interrupted

    def ended(self, result: CompactionJobResult) -> None:
        """Record the end of a job."""
        job_id = result.job.job_id
        self._open.pop(job_id, None)
        self.busy_s += self._ticks_s() - self._started_s
        self._started_s = self._ticks_s()
        if result.failure is not None:
            self.failures.append(result)
            self._record(self.failed(job_id, reasons_of(result.failure)))
            return
        self.done.append(result)
        finished = self._events(job_id).finished(
            self._now(),
            files=1,
            rows_read=result.rows_read,
            rows_written=result.rows_written,
            transaction=result.transaction,
            commit_s=self._commit_s(),
        )
        self._record(finished)

    def give_back(self, reasons: tuple[str, ...]) -> None:
        """Record why the jobs that have not ended never will."""
        self._record(*(self.failed(job_id, reasons) for job_id in self._open))
        self._open.clear()

    def failed(self, job_id: str, reasons: tuple[str, ...]) -> JobEvent:
        """Return the event of a job that failed, or ended with its worker."""
        return self._events(job_id).failed(self._now(), reasons, is_final=True)

    def _events(self, job_id: str) -> RunEvents:
        return RunEvents(
            kind=JobKind.COMPACTION,
            table_id=self._table_id,
            job_id=job_id,
            run_id=job_id,
            task_id=self._task_id,
        )
