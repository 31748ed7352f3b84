"""Records what happens to jobs, and lets no job fail because a tracker does."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sleeper.errors import StorageFailed
from sleeper.model.jobs.events import UNKNOWN_TABLE, JobEvent, JobEventType, TaskEvent
from sleeper.model.jobs.kinds import JobKind
from sleeper.model.jobs.settings import TrackerSettings, tracker_settings
from sleeper.model.known_properties.typed import InstanceProperties
from sleeper.ports.jobs import JobTracker

_log = logging.getLogger(__name__)


def events_kept(properties: InstanceProperties) -> dict[JobKind, TrackerSettings]:
    """Return how each kind of job is tracked in an instance."""
    return {kind: tracker_settings(properties, kind) for kind in JobKind}


@dataclass(frozen=True, slots=True)
class MessageEvents:
    """What the tracker knows of one message that asks for a job."""

    events: tuple[JobEvent, ...]

    @property
    def next_attempt(self) -> int:
        """The number of the next attempt at it."""
        return 1 + max((event.attempt or 0 for event in self.events), default=0)

    @property
    def table_id(self) -> str | None:
        """The table that the job was accepted for; None where that is not known."""
        ids = (event.table_id for event in self.events if event.table_id != UNKNOWN_TABLE)
        return next(ids, None)


class EventRecorder:
    """Writes events to a tracker.

    Args:
        tracker: Where events are kept.
        kept: How each kind of job is tracked; nothing is written for those that are not.
        now: The clock (aware, UTC).
    """

    def __init__(
        self,
        tracker: JobTracker,
        *,
        kept: Mapping[JobKind, TrackerSettings],
        now: Callable[[], datetime],
    ) -> None:
        self._tracker = tracker
        self._kept = kept
        self.now = now

    def record(self, *events: JobEvent | TaskEvent) -> None:
        """Write events of one kind of job. A tracker that fails is logged, never raised."""
        if not events or not self._kept[events[0].kind].enabled:
            return
        kept, now = self._kept[events[0].kind], self.now()
        of_jobs = [event for event in events if isinstance(event, JobEvent)]
        of_tasks = [event for event in events if isinstance(event, TaskEvent)]
        for same, ttl in ((of_jobs, kept.job_ttl), (of_tasks, kept.task_ttl)):
            if same:
                self._write(same, now + ttl)

    def _write(self, events: Sequence[JobEvent | TaskEvent], expires: datetime) -> None:
        try:
            self._tracker.record(events, expires=expires)
        except StorageFailed as failure:
            lost = ", ".join(_text(event) for event in events)
            _log.warning("the tracker misses %s: %s", lost, failure)

    def input_hashes(self, kind: JobKind, table_id: str, job_id: str) -> set[str]:
        """Return the hashes of the inputs that a job was accepted with, as far as is known."""
        return {
            event.input_hash
            for event in self.known(kind, job_id)
            if event.table_id == table_id and event.input_hash is not None
        }

    def of_message(self, kind: JobKind, job_id: str, message_id: str) -> MessageEvents:
        """Return what is known of a message that asks for a job."""
        events = [each for each in self.known(kind, job_id) if each.message_id == message_id]
        return MessageEvents(tuple(events))

    def known(self, kind: JobKind, job_id: str) -> list[JobEvent]:
        """Return a job's events; none where the tracker cannot be asked."""
        try:
            return self._tracker.events_of_job(kind, job_id)
        except StorageFailed as failure:
            _log.warning("the tracker cannot be asked about job %s: %s", job_id, failure)
            return []


def _text(event: JobEvent | TaskEvent) -> str:
    if isinstance(event, TaskEvent):
        return f"task {event.task_id} {'finished' if event.is_finished else 'started'}"
    return f"job {event.job_id} {event.type}"


# ---------------------------------------------------------------- run events
#
# The events of one run of a job, as workers and drivers on clusters record them.


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
        message_id: The message that it is an attempt at; None where there is none.
        attempt: Which attempt at the message it is, from 1; None where nobody counted.
    """

    kind: JobKind
    table_id: str
    job_id: str
    run_id: str
    task_id: str
    input_files: int | None = None
    input_hash: str | None = None
    message_id: str | None = None
    attempt: int | None = None

    def accepted(self, at: datetime, **details: Any) -> JobEvent:
        """The job can be run."""
        return self._of_run(
            JobEventType.ACCEPTED,
            at,
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
            message_id=self.message_id,
            attempt=self.attempt,
            **details,
        )
