"""A transaction log that compares the last entry it has seen with the storage before it goes on.

A reader goes on from an entry that it has seen, and a writer appends to it. Both look for the next
number only, and would not notice that their entry is no longer there: because the instance was
moved or deleted, or because an older copy was put in its place. A commit would then leave a hole in
the log, and a job would count as committed whose rows are in no log.

What is guaranteed:

- In a folder the last entry is compared at each look and again before each commit, which costs a
  `stat`; in memory it is read. A folder that is replaced after that, while the commit is written,
  is noticed by the commit's temp file, which lies in the folder of before. Only the microseconds
  between the comparison and the temp file are not covered.
- In a bucket and in DynamoDB it is read again, beside the look, if it was read or appended more
  than a minute ago. So a look costs one request as long as looks are frequent, and two after a
  pause. Within that minute a handle may use an instance that was replaced: stop what writes to a
  bucket before you restore it.

An entry that is missing, but covered by a snapshot of the same state, is not needed: see `covered`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from itertools import chain
from typing import Final

from sleeper.errors import DataDamaged, InstanceLost, StorageFailed
from sleeper.ports.objects import ObjectInfo, Objects
from sleeper.ports.transaction_log import TransactionLog

_log = logging.getLogger(__name__)

TRUSTED_S: Final = 60.0
"""Where a read is a request, an entry is not read again for so long."""


def _none_covered() -> int:
    return 0


def _nothing() -> None:
    """Wait for nothing, and compare nothing."""


def _any_entry(number: int, body: bytes) -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Following:
    """How a log is followed.

    Attributes:
        objects: The objects of the instance.
        ticks_s: A monotonic clock, in seconds.
        lost: Returns the error to raise, given what is not there.
        covered: Returns the number of the newest snapshot; asked if an entry is missing.
        is_last: Returns whether the entry with a number and a body is the one before the reader's
            state; asked if that was loaded from a snapshot, and the entry itself not read.
        check_empty: Checks that the instance is there, while no entry of the log was seen.
        found_empty: Called if the log has no entry at all, and none was seen; raises if it must
            have some.
        first: The number of the log's first entry.
        is_remote: Whether reading an entry is a request.
        is_dated: Whether an entry is not read again while it was stored at the same time: in a
            folder, where `stored_at` is the time of the last change by the system's clock.
    """

    objects: Objects
    ticks_s: Callable[[], float]
    lost: Callable[[str], Exception]
    covered: Callable[[], int] = _none_covered
    is_last: Callable[[int, bytes], bool] = _any_entry
    check_empty: Callable[[], None] = _nothing
    found_empty: Callable[[], None] = _nothing
    first: int = 1
    is_remote: bool
    is_dated: bool = False


@dataclass(frozen=True, slots=True)
class _Entry:
    """The last entry that was seen.

    Attributes:
        number: Its number.
        digest: Of its body; None if only its number is known, from a snapshot.
        stored_at: When it was stored; None where that is not used.
        seen_s: When it was read or appended, in ticks.
    """

    number: int
    digest: bytes | None
    stored_at: datetime | None
    seen_s: float


class FollowedLog:
    """A `TransactionLog` that raises an error if the last entry it has seen is not there.

    Safe for many threads: each compares the last entry that any of them has seen.

    Args:
        log: The log.
        following: How it is followed.
    """

    def __init__(self, log: TransactionLog, following: Following) -> None:
        self._log = log
        self._following = following
        self._last: _Entry | None = None

    def append(self, number: int, body: bytes) -> bool:
        """Append an entry after the one before it was compared, as far as that is due.

        If the storage does not answer the comparison, the entry is sent all the same: the look
        before the commit has compared it, and a failure here would be taken for a lost answer.

        Raises:
            InstanceLost: the entry before is not there. Nothing was written.
        """
        try:
            self._begin_check(number - 1)()
        except InstanceLost:
            raise
        except StorageFailed as failure:
            _log.info("the entry before %d was not compared again: %s", number, failure)
        if not self._log.append(number, body):
            return False
        self._remember(number, body)
        return True

    def read(self, number: int) -> bytes | None:
        """Read an entry."""
        return self._log.read(number)

    def read_after(self, number: int) -> Iterator[tuple[int, bytes]]:
        """Read entries until there is none, and compare the last one that was seen before.

        Raises:
            InstanceLost: it is not there, or another one.
            DataDamaged: it is not there, but a later snapshot is.
        """
        check = self._begin_check(number)
        entries = self._log.read_after(number)
        next_entry = next(entries, None)
        check()
        if next_entry is None:
            if number < self._following.first and self._last is None:
                self._following.found_empty()
            return
        for found, body in chain([next_entry], entries):
            self._remember(found, body)
            yield found, body

    def stored_at(self, number: int) -> datetime | None:
        """Ask when an entry was stored."""
        return self._log.stored_at(number)

    def writer_lock(self, meanwhile: Callable[[], object]) -> AbstractContextManager[None]:
        """Hold the log's advisory lock among writers of this machine (see the port)."""
        return self._log.writer_lock(meanwhile)

    def sweep(
        self, before: datetime, *, delete: bool
    ) -> tuple[Sequence[ObjectInfo], Mapping[str, str]]:
        """Find what killed writers left (see the port)."""
        return self._log.sweep(before, delete=delete)

    def delete(self) -> None:
        """Delete the entries."""
        self._log.delete()

    def _begin_check(self, number: int) -> Callable[[], None]:
        """Begin to compare entry `number`, or a later one that was seen; return what waits for it.

        Nothing is compared before the log's first entry, and nothing that is not due.
        """
        last = self._last
        if last is None or last.number < number:
            if number < self._following.first:
                return self._following.check_empty if last is None else _nothing
            last = _Entry(number, None, None, self._following.ticks_s())
            if self._following.is_remote:
                self._last = last
        if not self._is_due(last):
            return _nothing
        return self._following.objects.beside(lambda: self._compare(last))

    def _is_due(self, entry: _Entry) -> bool:
        if self._following.is_remote:
            passed_s = self._following.ticks_s() - entry.seen_s
            return not 0 <= passed_s <= TRUSTED_S
        stored_at = self._stored_at(entry.number)
        return stored_at is None or stored_at != entry.stored_at

    def _compare(self, entry: _Entry) -> None:
        stored_at = self._stored_at(entry.number)
        body = self._log.read(entry.number)
        about = f"entry {entry.number} of the log, which this process has seen, "
        if body is None:
            covered = self._following.covered()
            if covered > entry.number:
                raise DataDamaged(f"{about}is missing; there is a snapshot of {covered}")
            if covered < entry.number:
                raise self._following.lost(f"{about}is not there")
            return
        digest = sha256(body).digest()
        if entry.digest is None:
            is_same = self._following.is_last(entry.number, body)
        else:
            is_same = digest == entry.digest
        if not is_same:
            raise self._following.lost(f"{about}is another one now")
        self._note(_Entry(entry.number, digest, stored_at, self._following.ticks_s()))

    def _remember(self, number: int, body: bytes) -> None:
        stored_at = self._stored_at(number)
        self._note(_Entry(number, sha256(body).digest(), stored_at, self._following.ticks_s()))

    def _stored_at(self, number: int) -> datetime | None:
        return self._log.stored_at(number) if self._following.is_dated else None

    def _note(self, entry: _Entry) -> None:
        if self._last is None or self._last.number <= entry.number:
            self._last = entry
