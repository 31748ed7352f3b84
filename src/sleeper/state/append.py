"""The commit loop: appends an entry to a log, though other writers may take its number first.

An entry is a numbered object of a log; a number is taken once, by whoever creates it first.

1. take the log's lock among writers of this machine, as far as it has one
2. the caller reads the entries of others and builds the next one; without a body there is none
3. create it if its number is free; if it is not, pause, and back to 1
4. a lost reply is cleared up by reading the entry, and sending it again if it is absent

Transactions of a table (`state/commit.py`) and changes of the table index
(`state/table_index.py`) are appended by it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import count
from typing import Generic, Protocol, TypeVar

from sleeper.errors import (
    CommitContended,
    CommitUnknown,
    InstanceLost,
    StorageFailed,
    StorageFull,
    StorageReadOnly,
)

T = TypeVar("T")

_SENDS = 3  # how often one entry is sent if storage does not confirm the result
_LOOKS_PER_CALL = 10  # looks at the writers' lock for one call of `meanwhile`


class Entries(Protocol):
    """What takes numbered entries, such as a `TransactionLog`, which describes the methods."""

    def append(self, number: int, body: bytes) -> bool:
        """Store entry `number` if that number is free."""
        ...

    def read(self, number: int) -> bytes | None:
        """Return the body of entry `number`, or None if there is none."""
        ...

    def writer_lock(self, meanwhile: Callable[[], object]) -> AbstractContextManager[None]:
        """Hold an advisory lock among writers of this machine."""
        ...


@dataclass(frozen=True, slots=True)
class NextEntry(Generic[T]):
    """The entry that one attempt appends, and the result for the caller.

    Attributes:
        number: The entry's number: one more than the last one read.
        body: Its body, different from any other writer's; None if there is nothing to append.
        result: What `append_entry` returns once the log holds the entry.
    """

    number: int
    body: bytes | None
    result: T


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitWording:
    """Words of error messages about an entry.

    Attributes:
        entry: The word before the entry's number.
        when_contended: What to do after losing every race.
        when_unknown: What to do if it is unknown whether the entry was written.
        attempts_source: The setting of the number of attempts.
    """

    entry: str
    when_contended: str
    when_unknown: str
    attempts_source: str


def append_entry(
    log: Entries,
    build: Callable[[], NextEntry[T]],
    *,
    pause: Callable[[int], None],
    attempts: int,
    wording: CommitWording,
    meanwhile: Callable[[], object] = lambda: None,
) -> T:
    """Append the entry that `build` returns, in at most `attempts` attempts; return its result.

    Args:
        log: The log.
        build: Reads new entries of the log and builds the next one; called in each attempt. An
            error that it raises ends the commit.
        pause: Waits before another attempt; called with the number of attempts before, from 0.
        attempts: Maximum number of attempts if other writers take the number first.
        wording: Words of error messages.
        meanwhile: Called now and then while other writers of this machine have the log's lock, to
            read their entries: whoever has the lock then holds others up for less time.

    Raises:
        CommitContended: other writers were faster in every attempt. Nothing was written.
        CommitUnknown: storage did not confirm whether the entry was written.
        StorageFailed: storage failed. Nothing was written.
        InstanceLost: the log is not the one that was read before. Nothing was written.
    """
    if attempts < 1:
        raise CommitContended(
            f"no attempt to commit was made: {wording.attempts_source} is {attempts}. Nothing "
            "was written. Set it to 1 or more."
        )
    looks = count()

    def wait_for_lock() -> None:
        if next(looks) % _LOOKS_PER_CALL == 0:
            meanwhile()
        pause(0)

    for attempt in range(attempts):
        with log.writer_lock(wait_for_lock):
            entry = build()
            if entry.body is None or _append(log, entry.number, entry.body, pause, wording):
                return entry.result
        if attempt + 1 < attempts:
            pause(attempt)
    raise CommitContended(
        f"other writers were faster in {attempts} attempts, the last time for {wording.entry} "
        f"{entry.number}. Nothing was written. {wording.when_contended}"
    )


def _append(
    log: Entries,
    number: int,
    body: bytes,
    pause: Callable[[int], None],
    wording: CommitWording,
) -> bool:
    """Append an entry; if the reply is lost, read the log to find out the result.

    Returns:
        True if `number` is our entry, False if it is another writer's.

    Raises:
        StorageFull, StorageReadOnly, InstanceLost: the entry was not written.
        CommitUnknown: the entry may be written, now or later.
    """
    certain = True  # every failure so far was a refusal: no request can still be executed later
    failure: StorageFailed
    for send in range(_SENDS):
        if send:
            pause(send - 1)
        try:
            return log.append(number, body)
        except InstanceLost as error:
            if certain:
                raise
            failure = error  # the entry may be where the instance was moved to
            break
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
