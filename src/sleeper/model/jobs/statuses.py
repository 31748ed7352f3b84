"""The status of an ingest, bulk import or compaction job, folded from its events.

Events come from several processes: in any order, some twice, some never. The same set of events
gives the same status (rules TRK-1 to TRK-5).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, TypeVar

from sleeper.html.values import NotebookHtml
from sleeper.model.jobs.attempts import LOST, Attempt, attempts_of, is_given_up, last_failure
from sleeper.model.jobs.events import JobEvent, JobEventType
from sleeper.model.jobs.kinds import JobKind

# ---------------------------------------------------------------- states
#
# The states of jobs: of one run by what happened in it, of a job by its runs (rules TRK-2, TRK-3).
#
# Nothing here depends on the order in which events arrive, or on how often.


class JobState(StrEnum):
    """Where a job is. An ingest has no CREATED; a compaction no ACCEPTED and no REJECTED."""

    CREATED = "CREATED"
    ACCEPTED = "ACCEPTED"
    REJECTED = "REJECTED"
    IN_PROGRESS = "IN_PROGRESS"
    UNCOMMITTED = "UNCOMMITTED"
    FINISHED = "FINISHED"
    FAILED = "FAILED"

    @property
    def is_run_in_progress(self) -> bool:
        """True while a run in this state may still do something by itself."""
        return self in (JobState.ACCEPTED, JobState.IN_PROGRESS)

    @property
    def is_end(self) -> bool:
        """True when nothing more can come of a job in this state."""
        return self in (JobState.REJECTED, JobState.FINISHED)


# Of a job's runs, the one whose state is last here says the job's state.
_FURTHEST_RUN: Final = {
    JobKind.INGEST: (
        *(JobState.REJECTED, JobState.ACCEPTED, JobState.FAILED),
        *(JobState.IN_PROGRESS, JobState.UNCOMMITTED, JobState.FINISHED),
    ),
    JobKind.COMPACTION: (
        *(JobState.CREATED, JobState.FAILED),
        *(JobState.IN_PROGRESS, JobState.UNCOMMITTED, JobState.FINISHED),
    ),
}
_COMMITTED: Final = (JobEventType.ADDED_FILES, JobEventType.COMMITTED)


def furthest(kind: JobKind, states: Iterable[JobState]) -> JobState:
    """Return the state of a job whose runs are in these states (rules TRK-2, TRK-3)."""
    return max(states, key=lambda state: rank_in_job(kind, state))


def rank_in_job(kind: JobKind, state: JobState) -> int:
    """Return how far a run in this state has brought its job, compared with other runs."""
    order = _FURTHEST_RUN.get(kind, _FURTHEST_RUN[JobKind.INGEST])
    return order.index(state) if state in order else -1


def state_of_run(kind: JobKind, events: Sequence[JobEvent]) -> JobState:
    """Return the state of a run: that of its furthest update (rules TRK-2, TRK-3).

    Args:
        kind: What the job does.
        events: What happened in the run, in any order; each once, and one at least.
    """
    types = {event.type for event in events}
    if JobEventType.FAILED in types:
        return JobState.FAILED
    if JobEventType.REJECTED in types:
        return JobState.REJECTED
    finished = [event for event in events if event.type is JobEventType.FINISHED]
    if kind is JobKind.COMPACTION and types & {*_COMMITTED}:
        return JobState.FINISHED
    if finished:
        return JobState.FINISHED if _is_committed(finished, events) else JobState.UNCOMMITTED
    if types & {JobEventType.STARTED, *_COMMITTED}:
        return JobState.IN_PROGRESS
    return JobState.ACCEPTED if JobEventType.ACCEPTED in types else JobState.CREATED


def _is_committed(finished: Sequence[JobEvent], events: Sequence[JobEvent]) -> bool:
    """Return whether a run that is finished is committed too.

    One that says that another process commits it is committed when as many files were added as
    it has written. An event without a number of files is about all of them.
    """
    if any(event.is_committed for event in finished):
        return True
    commits = [event for event in events if event.type in _COMMITTED]
    written = [event.files for event in finished if event.files is not None]
    if written and all(event.files is not None for event in commits):
        return files_added(commits) >= max(written)
    return bool(commits)


def files_added(commits: Iterable[JobEvent]) -> int:
    """Return how many files were added; events of one transaction are about the same files."""
    by_transaction: dict[object, int] = {}
    for event in commits:
        key = event if event.transaction is None else event.transaction
        by_transaction[key] = max(by_transaction.get(key, 0), event.files or 0)
    return sum(by_transaction.values())


T = TypeVar("T")

_ORDER: Final = {kind: at for at, kind in enumerate(JobEventType)}
_FAILURES: Final = (JobState.REJECTED, JobState.FAILED)
_ENDS: Final = (JobEventType.FINISHED, JobEventType.FAILED, JobEventType.REJECTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRun(NotebookHtml):
    """One attempt to do a job. What is not known is None or empty.

    Attributes:
        run_id: The run; None where events named neither run nor task.
        task_id: The task that ran it.
        state: Its state.
        accepted: When the job was accepted for it (aware, UTC).
        started: When it started.
        finished: When it finished or failed, or was rejected.
        committed: When its result was added to the table.
        rows_read: Rows that it read.
        rows_written: Rows that it wrote.
        files_written: Files that it wrote.
        files_added: Files of it that were added to the table.
        reasons: Why it failed or was rejected, outermost first (rule TRK-5).
        transaction: The table's transaction number that has its result.
        is_final: True when it failed and the job is not tried again by itself.
    """

    run_id: str | None
    task_id: str | None
    state: JobState
    accepted: datetime | None = None
    started: datetime | None = None
    finished: datetime | None = None
    committed: datetime | None = None
    rows_read: int | None = None
    rows_written: int | None = None
    files_written: int | None = None
    files_added: int | None = None
    reasons: tuple[str, ...] = ()
    transaction: int | None = None
    is_final: bool = False

    @property
    def seconds(self) -> float | None:
        """How long it ran, from its start to its end."""
        return seconds_between(self.started, self.finished)

    @property
    def rows_read_per_s(self) -> float | None:
        """Rows read a second."""
        return rate(self.rows_read, self.seconds)

    @property
    def rows_written_per_s(self) -> float | None:
        """Rows written a second."""
        return rate(self.rows_written, self.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus(NotebookHtml):
    """Where a job is, and what its runs did. What is not known is None or empty.

    Attributes:
        kind: What the job does.
        table_id: Its table.
        job_id: The job.
        state: Its state: that of the run that came furthest.
        runs: Its runs: the one that came furthest first, of those alike the latest.
        created: When a compaction job was made (aware, UTC).
        accepted: When it was accepted first, or rejected.
        updated: When the last thing happened to it.
        is_given_up: True when it failed and is not tried again by itself: each message that asked
            for it has ended.
        input_files: How many files it reads.
        reasons: Why it was rejected or failed, outermost first (rule TRK-5).
        message: The message as it came, of a job that was rejected.
        platform: Where a bulk import runs; None for all else.
        partition_id: The leaf of a compaction.
    """

    kind: JobKind
    table_id: str
    job_id: str
    state: JobState
    runs: tuple[JobRun, ...]
    created: datetime | None
    accepted: datetime | None
    updated: datetime
    is_given_up: bool
    input_files: int | None
    reasons: tuple[str, ...]
    message: str | None
    platform: str | None
    partition_id: str | None

    @property
    def is_over(self) -> bool:
        """True when nothing more comes of the job by itself."""
        return self.state.is_end or self.is_given_up

    @property
    def furthest_run(self) -> JobRun | None:
        """The run that came furthest; None before any."""
        return self.runs[0] if self.runs else None

    @property
    def transaction(self) -> int | None:
        """The table's transaction number that has its result."""
        return next((run.transaction for run in self.runs if run.transaction is not None), None)

    @property
    def started(self) -> datetime | None:
        """When its first run started."""
        return min((run.started for run in self.runs if run.started), default=None)

    @property
    def finished(self) -> datetime | None:
        """When it ended; None while it may go on."""
        if self.is_unfinished:
            return None
        ends = [run.committed or run.finished for run in self.runs]
        return max((end for end in ends if end), default=self.updated)

    @property
    def is_unfinished(self) -> bool:
        """True while something may still come of it, or of one of its runs (rule TRK-7)."""
        return not self.is_over or any(run.state.is_run_in_progress for run in self.runs)


def seconds_between(started: datetime | None, finished: datetime | None) -> float | None:
    """Return how long something ran; None when it has not ended, or its start is unknown."""
    return None if started is None or finished is None else (finished - started).total_seconds()


def rate(count: int | None, seconds: float | None) -> float | None:
    """Return how many there were a second; None when it is unknown, or no time went by."""
    if count is None or seconds is None or seconds <= 0:
        return None
    return count / seconds


def job_status(events: Iterable[JobEvent]) -> JobStatus:
    """Return the status of an ingest, bulk import or compaction job (rules TRK-1 to TRK-5).

    Args:
        events: Of one job: all that are known, in any order; one at least.
    """
    known = in_order(events)
    first = known[0]
    kind = first.kind
    attempts = attempts_of(known)
    runs = [
        run
        for run, _ in sorted(
            ((_run(kind, each), each.number) for each in attempts if each.run is not None),
            key=lambda found: (rank_in_job(kind, found[0].state), found[1], *_latest(found[0])),
            reverse=True,
        )
    ]
    states = [run.state for run in runs]
    states += [
        state_of_run(kind, each.events)
        for each in attempts
        if each.run is None and not each.is_lost
    ]
    if kind is JobKind.COMPACTION:
        states.append(JobState.CREATED)
    state = furthest(kind, states)
    return JobStatus(
        kind=kind,
        table_id=first.table_id,
        job_id=first.job_id,
        state=state,
        runs=tuple(runs),
        created=_earliest(known, JobEventType.CREATED),
        accepted=_earliest(known, JobEventType.ACCEPTED, JobEventType.REJECTED),
        updated=known[-1].at,
        is_given_up=state is JobState.FAILED and is_given_up(attempts),
        input_files=_last(event.input_files for event in known),
        reasons=_reasons(state, attempts),
        message=_last(event.message for event in known) if state in _FAILURES else None,
        platform=_last(event.platform for event in known),
        partition_id=_last(event.partition_id for event in known),
    )


def in_order(events: Iterable[JobEvent]) -> list[JobEvent]:
    """Return events each once, by time, in an order that depends on nothing but themselves.

    Raises:
        ValueError: there is none, or they are of several jobs.
    """
    known = sorted(
        set(events),
        key=lambda event: (event.at, _ORDER[event.type], event.run_id or "", repr(event)),
    )
    jobs = {(event.kind, event.table_id, event.job_id) for event in known}
    if len(jobs) != 1:
        raise ValueError(f"the events of one job make a status, not those of {len(jobs)} jobs")
    return known


def _reasons(state: JobState, attempts: Sequence[Attempt]) -> tuple[str, ...]:
    """Return why a job was rejected or has failed: what the last attempt at it says."""
    if state not in _FAILURES:
        return ()
    last = last_failure(attempts)
    return LOST if last is None else last.reasons


def _run(kind: JobKind, attempt: Attempt) -> JobRun:
    events, (named, name) = attempt.events, attempt.run or ("job", "")
    commits = [event for event in events if event.type in _COMMITTED]
    ends = [event for event in events if event.type in _ENDS]
    files = [event.files for event in events if event.type is JobEventType.FINISHED]
    return JobRun(
        run_id=name if named == "run" else None,
        task_id=_last(event.task_id for event in events),
        state=JobState.FAILED if attempt.is_lost else state_of_run(kind, events),
        accepted=_earliest(events, JobEventType.ACCEPTED),
        started=_earliest(events, JobEventType.STARTED),
        finished=ends[-1].at if ends else None,
        committed=_committed(events, commits),
        rows_read=_last(event.rows_read for event in events),
        rows_written=_last(event.rows_written for event in events),
        files_written=_last(files),
        files_added=files_added(commits) if commits else None,
        reasons=LOST if attempt.is_lost else _last(each.reasons or None for each in ends) or (),
        transaction=_last(event.transaction for event in events),
        is_final=_is_final(events),
    )


def _is_final(events: Iterable[JobEvent]) -> bool:
    """Return whether the last failure is said to be the end."""
    failures = [event.is_final for event in events if event.type is JobEventType.FAILED]
    return bool(failures) and failures[-1]


def _committed(events: Sequence[JobEvent], commits: Sequence[JobEvent]) -> datetime | None:
    """When a run was committed: its last commit, or its end where that says so."""
    if commits:
        return commits[-1].at
    return _earliest([event for event in events if event.is_committed], JobEventType.FINISHED)


def _earliest(events: Iterable[JobEvent], *types: JobEventType) -> datetime | None:
    return min((event.at for event in events if event.type in types), default=None)


def _last(values: Iterable[T | None]) -> T | None:
    found = None
    for value in values:
        found = found if value is None else value
    return found


def _latest(run: JobRun) -> tuple[float, str, str]:
    times = (run.accepted, run.started, run.finished, run.committed)
    newest = max((at.timestamp() for at in times if at), default=0.0)
    return newest, run.run_id or "", run.task_id or ""
