"""The status of a query or an export, folded from its events (rule QRY-15).

The same set of events gives the same status, whatever order they come in and however often.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sleeper.html.values import NotebookHtml
from sleeper.model.jobs.attempts import (
    LOST,
    Attempt,
    attempts_of,
    is_given_up,
    last_failure,
)
from sleeper.model.jobs.events import JobEvent, JobEventType
from sleeper.model.jobs.kinds import JobKind
from sleeper.model.jobs.statuses import in_order, rate, seconds_between


class QueryState(StrEnum):
    """Where a query is. Of its runs, the one whose state is last here says it."""

    QUEUED = "QUEUED"
    FAILED = "FAILED"
    PARTIALLY_FAILED = "PARTIALLY_FAILED"
    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"

    @property
    def has_failed(self) -> bool:
        """True when it failed, with or without some rows (rule QRY-16)."""
        return self in (QueryState.FAILED, QueryState.PARTIALLY_FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryStatus(NotebookHtml):
    """Where a query or an export is. What is not known is None or empty.

    Attributes:
        kind: A query or an export.
        table_id: Its table.
        query_id: The query or export.
        state: Its state.
        queued: When it was accepted (aware, UTC).
        started: When it started, in the run that says its state.
        finished: When that run ended.
        updated: When the last thing happened to it.
        rows: Rows that were published.
        locations: Where they are.
        errors: Why it failed, outermost first (rule TRK-5).
        message: The message as it came, where it was rejected.
        runs: How often it was tried.
        is_given_up: True when it failed and is not tried again by itself.
    """

    kind: JobKind
    table_id: str
    query_id: str
    state: QueryState
    queued: datetime | None
    started: datetime | None
    finished: datetime | None
    updated: datetime
    rows: int | None
    locations: tuple[str, ...]
    errors: tuple[str, ...]
    message: str | None
    runs: int
    is_given_up: bool

    @property
    def is_unfinished(self) -> bool:
        """True while something may still come of it."""
        if self.state.has_failed:
            return not self.is_given_up
        return self.state is not QueryState.COMPLETED

    @property
    def rows_per_s(self) -> float | None:
        """Rows published a second."""
        return rate(self.rows, seconds_between(self.started, self.finished))


def query_status(events: Iterable[JobEvent]) -> QueryStatus:
    """Return the status of a query or an export (rule QRY-15).

    Args:
        events: Of one query: all that are known, in any order; one at least.

    Raises:
        ValueError: there is none, or they are of several queries.
    """
    known = in_order(events)
    attempts = attempts_of(known)
    furthest = max(
        (each for each in attempts if each.run is not None or not each.is_lost), key=_rank
    )
    state, of_run = _state_of(furthest), furthest.events
    ends = [event for event in of_run if event.type in _ENDS]
    last = ends[-1] if ends else None
    why = last_failure(attempts) if state.has_failed else None
    accepted = [event.at for event in known if event.type is JobEventType.ACCEPTED]
    started = [event.at for event in of_run if event.type is JobEventType.STARTED]
    return QueryStatus(
        kind=known[0].kind,
        table_id=known[0].table_id,
        query_id=known[0].job_id,
        state=state,
        queued=min(accepted, default=None),
        started=min(started, default=None),
        finished=last.at if last else None,
        updated=known[-1].at,
        rows=last.rows_written if last else None,
        locations=last.locations if last else (),
        errors=_errors(state, why),
        message=_message(known) if state.has_failed else None,
        runs=len([each for each in attempts if each.run is not None]),
        is_given_up=state.has_failed and is_given_up(attempts),
    )


_FURTHEST = tuple(QueryState)
_ENDS = (JobEventType.FINISHED, JobEventType.FAILED, JobEventType.REJECTED)


def _errors(state: QueryState, why: JobEvent | None) -> tuple[str, ...]:
    if why is not None:
        return why.reasons
    return LOST if state.has_failed else ()


def _message(events: Iterable[JobEvent]) -> str | None:
    return next((event.message for event in events if event.message is not None), None)


def _rank(attempt: Attempt) -> tuple[int, int, datetime, str]:
    """Return how far an attempt came: a rejection less far than a query that waits."""
    state, last = _state_of(attempt), attempt.events[-1]
    types = {event.type for event in attempt.events}
    is_rejected = JobEventType.REJECTED in types and JobEventType.FAILED not in types
    rank = -1 if is_rejected and state.has_failed else _FURTHEST.index(state)
    return rank, attempt.number, last.at, repr(last)


def _state_of(attempt: Attempt) -> QueryState:
    """Return the state of an attempt: one that failed after some rows has failed in part."""
    events = attempt.events
    types = {event.type for event in events}
    if JobEventType.FINISHED in types:
        return QueryState.COMPLETED
    failed = [event for event in events if event.type is JobEventType.FAILED]
    if failed:
        return QueryState.PARTIALLY_FAILED if failed[-1].rows_written else QueryState.FAILED
    if JobEventType.REJECTED in types or attempt.is_lost:
        return QueryState.FAILED
    return QueryState.IN_PROGRESS if JobEventType.STARTED in types else QueryState.QUEUED
