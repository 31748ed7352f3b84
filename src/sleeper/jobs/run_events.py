"""The events of one run of a job, as workers and drivers on clusters record them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sleeper.language.value_classes import dataclass
from sleeper.model.jobs.events import JobEvent, JobEventType, JobKind


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvents:
    """Makes the events of one run.

    Attributes:
        kind: What the job does.
        table_id: Its table.
        job_id: The job.
        run_id: The run.
        task_id: The worker or driver that runs it.
        input_files: How many paths the job names.
        input_hash: Tells its input from that of another job with its id.
    """

    kind: JobKind
    table_id: str
    job_id: str
    run_id: str
    task_id: str
    input_files: int | None = None
    input_hash: str | None = None

    def accepted(self, at: datetime, **details: Any) -> JobEvent:
        """The job can be run."""
        return JobEvent(
            kind=self.kind,
            table_id=self.table_id,
            job_id=self.job_id,
            type=JobEventType.ACCEPTED,
            at=at,
            input_files=self.input_files,
            input_hash=self.input_hash,
            **details,
        )

    def started(self, at: datetime, **details: Any) -> JobEvent:
        """The run has started."""
        return self._of_run(JobEventType.STARTED, at, input_files=self.input_files, **details)

    def finished(self, at: datetime, **details: Any) -> JobEvent:
        """The run has done its work; `details` say what, by the names of `JobEvent`."""
        return self._of_run(JobEventType.FINISHED, at, **details)

    def failed(
        self,
        at: datetime,
        reasons: tuple[str, ...],
        *,
        is_final: bool = False,
        rows_written: int | None = None,
    ) -> JobEvent:
        """The run has failed; `is_final` where the job is not tried again by itself."""
        return self._of_run(
            JobEventType.FAILED,
            at,
            reasons=reasons,
            is_final=is_final,
            rows_written=rows_written,
        )

    def _of_run(self, type_: JobEventType, at: datetime, **details: Any) -> JobEvent:
        return JobEvent(
            kind=self.kind,
            table_id=self.table_id,
            job_id=self.job_id,
            type=type_,
            at=at,
            run_id=self.run_id,
            task_id=self.task_id,
            **details,
        )
