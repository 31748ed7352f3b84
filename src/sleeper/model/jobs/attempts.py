"""The attempts at a job, as its events tell them, and whether another one comes by itself.

- A *message* asks for a job: each submission has one of its own. It is delivered until it is done,
  rejected, or given up, and comes again when a dead letter is put back.
- Each delivery is an *attempt* at it, counted by `JobEvent.attempt`. Mostly it is a *run*; what a
  message waits for, and a rejection, are attempts without one.

Nothing here goes by the time of an event: clocks of machines differ, and are set back. Only events
that name no message, those of earlier versions, are judged by theirs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sleeper.model.jobs.events import JobEvent, JobEventType

_FAILURES: Final = (JobEventType.FAILED, JobEventType.REJECTED)
_ENDS: Final = (JobEventType.FINISHED, *_FAILURES)
_OF_THE_JOB: Final = (JobEventType.CREATED, JobEventType.ACCEPTED, JobEventType.REJECTED)

LOST: Final = (
    "its message was delivered again before it told an end: its worker was killed, or slow",
)
"""Why an attempt has failed of which nobody told an end."""

RunKey = tuple[str, str]
"""What tells runs apart: the kind of name that they have, and the name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt at a job.

    Attributes:
        events: What happened in it, by time; one at least.
        run: The run; None for an attempt without one.
        message_id: Its message; None where no event names one.
        number: Which attempt at the message it is, from 1; 0 where nobody counted.
        is_lost: Whether its message was delivered again before it told an end: its worker was
            killed, or took longer than the message is hidden.
    """

    events: tuple[JobEvent, ...]
    run: RunKey | None
    message_id: str | None
    number: int
    is_lost: bool = False

    @property
    def has_told_end(self) -> bool:
        """True where its worker told what came of it."""
        return any(event.type in _ENDS for event in self.events)

    @property
    def has_ended(self) -> bool:
        """True where its message is delivered no more by itself."""
        return any(
            event.is_final or event.type in (JobEventType.FINISHED, JobEventType.REJECTED)
            for event in self.events
        )

    @property
    def why(self) -> JobEvent | None:
        """The last event that says why nothing came of it; None without one."""
        ends = [event for event in self.events if event.type in _FAILURES]
        return ends[-1] if ends else None


def attempts_of(events: Sequence[JobEvent]) -> tuple[Attempt, ...]:
    """Return the attempts that events of one job tell.

    An attempt without a run, of no message, is left out where there is any run: that tells more.

    Args:
        events: Each once, by time.
    """
    runs: dict[RunKey, list[JobEvent]] = defaultdict(list)
    others: dict[tuple[str | None, int], list[JobEvent]] = defaultdict(list)
    for event in events:
        key = _run_of(event)
        if key is None:
            others[event.message_id, event.attempt or 0].append(event)
        else:
            runs[key].append(event)
    found = [
        Attempt(
            events=tuple(of_run),
            run=key,
            message_id=next((each.message_id for each in of_run if each.message_id), None),
            number=max(event.attempt or 0 for event in of_run),
        )
        for key, of_run in runs.items()
    ]
    found += [
        Attempt(events=tuple(same), run=None, message_id=message_id, number=number)
        for (message_id, number), same in others.items()
        if message_id is not None or not runs or _is_rejected(same)
    ]
    newest = _newest(found)
    return tuple(
        replace(each, is_lost=not each.has_told_end and each.number < newest[each.message_id])
        if each.message_id is not None
        else each
        for each in found
    )


def open_messages(attempts: Sequence[Attempt]) -> list[str]:
    """Return the messages of which nobody told that they are delivered no more."""
    newest = _newest(attempts)
    ended = {
        each.message_id
        for each in attempts
        if each.message_id is not None and each.has_ended and each.number == newest[each.message_id]
    }
    return [each for each in newest if each not in ended]


def is_given_up(attempts: Sequence[Attempt]) -> bool:
    """Return whether no other attempt comes by itself: each message has ended."""
    if open_messages(attempts):
        return False
    before = [each for each in attempts if each.message_id is None]
    if len(before) < len(attempts) and not any(each.run for each in before):
        return True
    last = max(before, key=lambda each: (each.events[-1].at, each.has_ended), default=None)
    return last is None or last.has_ended


def last_failure(attempts: Sequence[Attempt]) -> JobEvent | None:
    """Return the event that says why a job was rejected, or has failed; None where none does.

    A rejection counts where no failure is newer: of its message, the last attempt says why.
    """
    newest = _newest(attempts)
    last = [
        each
        for each in attempts
        if each.message_id is None or each.number == newest[each.message_id]
    ]
    for of_these in (last, attempts):
        told = [each.why for each in of_these if each.why is not None]
        if told:
            return max(told, key=lambda event: (event.type is JobEventType.FAILED, event.at))
    return None


def _is_rejected(events: Iterable[JobEvent]) -> bool:
    return any(event.type is JobEventType.REJECTED for event in events)


def _newest(attempts: Iterable[Attempt]) -> Mapping[str, int]:
    """Return the number of the newest attempt at each message."""
    newest: dict[str, int] = {}
    for each in attempts:
        if each.message_id is not None:
            newest[each.message_id] = max(each.number, newest.get(each.message_id, 0))
    return newest


def _run_of(event: JobEvent) -> RunKey | None:
    """Return the run of an event; None for what belongs to the job as a whole (rule TRK-1)."""
    if event.run_id is not None:
        return "run", event.run_id
    if event.task_id is not None:
        return "task", event.task_id
    return None if event.type in _OF_THE_JOB else ("job", event.message_id or "")
