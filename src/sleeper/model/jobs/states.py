"""The states of jobs: of one run by what happened in it, of a job by its runs (rules TRK-2, TRK-3).

Nothing here depends on the order in which events arrive, or on how often.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final

from sleeper.model.jobs.events import JobEvent, JobEventType, JobKind


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
