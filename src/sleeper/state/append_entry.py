"""The one commit loop: appends an entry to a log, built on all entries before it.

Every commit goes through it, of a table's transactions and of the table index. Each attempt
catches up with the log, builds a body, and creates the next entry only if its number is still
free. A writer that loses the race for a number starts again from the newer entries.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from sleeper.errors import (
    CommitContended,
    CommitUnknown,
    StorageFailed,
    StorageFull,
    StorageReadOnly,
)
from sleeper.ports.transaction_log import TransactionLog

T = TypeVar("T")

_SENDS = 3  # how often one entry is sent while storage does not say what became of it


@dataclass(frozen=True, slots=True)
class NextEntry(Generic[T]):
    """What one attempt appends, and what the caller gets when it succeeds.

    Attributes:
        number: The entry's number: one more than the last that was read.
        body: Its body, equal to no other writer's; None when there is nothing to append.
        result: What `append_entry` returns once the log holds the entry.
    """

    number: int
    body: bytes | None
    result: T


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitWording:
    """How errors name an entry, and what they advise.

    Attributes:
        entry: What an entry is called, in front of its number.
        when_contended: What to do after losing every race.
        when_unknown: What to do when nobody knows whether the entry was written.
        attempts_source: What sets the number of attempts.
    """

    entry: str
    when_contended: str
    when_unknown: str
    attempts_source: str


def append_entry(
    log: TransactionLog,
    build: Callable[[], NextEntry[T]],
    *,
    pause: Callable[[int], None],
    attempts: int,
    wording: CommitWording,
) -> T:
    """Append what `build` makes, as often tried as `attempts` says, and return its result.

    Args:
        log: The log.
        build: Catches up with the log and builds the next entry; called once an attempt. What
            it raises ends the commit.
        pause: Waits before another try; called with how many there were, from 0.
        attempts: How many times to try when other writers take the number first.
        wording: How errors name the entry.

    Raises:
        CommitContended: other writers were faster in every attempt. Nothing was written.
        CommitUnknown: storage did not say what became of the entry.
        StorageFailed: storage failed. Nothing was written.
    """
    if attempts < 1:
        raise CommitContended(
            f"no attempt to commit was made: {wording.attempts_source} is {attempts}. Nothing "
            "was written. Set it to 1 or more."
        )
    for attempt in range(attempts):
        with log.writer_lock(pause):
            entry = build()
            if entry.body is None or _append(log, entry.number, entry.body, pause, wording):
                return entry.result
        if attempt + 1 < attempts:
            pause(attempt)
    raise CommitContended(
        f"others were faster {attempts} times: {wording.entry} {entry.number} and those before "
        f"it are theirs. Nothing was written. {wording.when_contended}"
    )


def _append(
    log: TransactionLog,
    number: int,
    body: bytes,
    pause: Callable[[int], None],
    wording: CommitWording,
) -> bool:
    """Append an entry; find out what became of it when the reply is lost.

    Returns:
        True when the entry holds `number`, False when another does.

    Raises:
        StorageFull, StorageReadOnly: storage refused, and the entry is not there.
        CommitUnknown: the entry may or may not be there, now or later.
    """
    certain = True  # every failure so far was a refusal: no request can still be on its way
    for send in range(_SENDS):
        if send:
            pause(send - 1)
        try:
            return log.append(number, body)
        except StorageFailed as error:
            failure = error
            certain = certain and isinstance(error, StorageFull | StorageReadOnly)
        try:
            found = log.read(number)
        except StorageFailed:
            certain = False
            continue
        if found is not None:
            return found == body
        if certain:
            raise failure
    raise CommitUnknown(
        f"storage did not say whether {wording.entry} {number} was committed: {failure} "
        f"{wording.when_unknown}"
    ) from failure
