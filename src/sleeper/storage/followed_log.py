"""Logs that are checked while a process uses them: entries read back, and the last one compared.

`CheckedTransactionLog` reads entries back, for stores that are not trusted to create an entry only
if it is absent. `FollowedLog` compares the last entry that it has seen with the storage before it
goes on.

A reader goes on from an entry that it has seen, and a writer appends to it. Both look for the
next number only, and would not notice that their entry is no longer there: because the instance
was moved or deleted, or because an older copy was put in its place. A commit would then leave a
hole in the log, and a job would count as committed whose rows are in no log.

What a followed log guarantees:

- In a folder the last entry is compared at each look and again before each commit, which costs a
  `stat`; in memory it is read. A folder that is replaced after that, while the commit is written,
  is noticed by the commit's temp file, which lies in the folder of before. Only the microseconds
  between the comparison and the temp file are not covered.
- In a bucket and in DynamoDB it is read again, beside the look, if it was read or appended more
  than a minute ago. So a look costs one request as long as looks are frequent, and two after a
  pause. Within that minute a handle may use an instance that was replaced: stop what writes to a
  bucket before you restore it.

An entry that is missing, but covered by a snapshot of the same state, is not needed: see
`covered`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from itertools import chain
from typing import Final

from sleeper.errors import CommitOverwritten, DataDamaged, InstanceLost, StorageFailed
from sleeper.ports.objects import Objects
from sleeper.ports.transaction_log import LogAround, TransactionLog
from sleeper.storage.transaction_log import TABLE_LOG, ObjectTransactionLog

logger = logging.getLogger(__name__)


def _trust() -> None:
    """Do nothing: the default check."""


def _nothing() -> None:
    """Wait for nothing, and compare nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitChecks:
    """The checks on a store that is not trusted.

    Attributes:
        before_commit: Called before each commit, and before files are written for one; raises an
            error if the store must not be used. Nothing is written then.
        read_back: Whether each entry is read again, after it was appended and at the next read.
    """

    before_commit: Callable[[], None] = _trust
    read_back: bool = False


NO_CHECKS = CommitChecks()


def open_log(
    objects: Objects,
    prefix: str = TABLE_LOG,
    checks: CommitChecks = NO_CHECKS,
    suffix: str = ".json",
) -> TransactionLog:
    """Return the log whose entries' keys start with `prefix`, with checks if any are set."""
    log = ObjectTransactionLog(objects, prefix, suffix)
    return log if checks == NO_CHECKS else CheckedTransactionLog(log, checks)


@dataclass(frozen=True, slots=True)
class _Entry:
    """An entry that was appended or read.

    Attributes:
        number: Its number.
        digest: Its digest.
        confirmed: Whether it was read again since.
        is_read_alone: Whether it was read by its number, to compare a copy of the state after it.
            The copy was made from what was read before, so only an append reads it again.
    """

    number: int
    digest: bytes
    confirmed: bool = False
    is_read_alone: bool = False


class CheckedTransactionLog(LogAround):
    """A `TransactionLog` that reads entries back, and reports one that was replaced.

    A server that checks before it writes, and not atomically, may let two writers create one
    entry: it reports success to both, and the second one's entry stays. So the last entry that was
    appended or read is read again twice: at once, and when the log is next read.

    Args:
        log: The log.
        checks: What is checked.
    """

    _log: ObjectTransactionLog

    def __init__(self, log: ObjectTransactionLog, checks: CommitChecks) -> None:
        super().__init__(log)
        self._checks = checks
        self._last: _Entry | None = None

    def append(self, number: int, body: bytes) -> bool:
        """Append an entry, then read it back.

        Raises:
            CommitOverwritten: the entry is not what was appended, or the one before was replaced.
        """
        if not self._checks.read_back:
            return self._log.append(number, body)
        self._confirm(number - 1, is_before_append=True)
        if not self._log.append(number, body):
            return False
        self._last = _Entry(number, _digest(body))
        self._compare(self._last)
        return True

    def writer_lock(self, meanwhile: Callable[[], object]) -> AbstractContextManager[None]:
        """Check the store, then hold the log's advisory lock among writers.

        Whoever begins a commit takes the lock first, so an error here is one before any entry.
        """
        self._checks.before_commit()
        return self._log.writer_lock(meanwhile)

    def read(self, number: int) -> bytes | None:
        """Read an entry; an append after it compares it, if none was read or appended before."""
        body = self._log.read(number)
        if body is not None and self._last is None:
            self._last = _Entry(number, _digest(body), is_read_alone=True)
        return body

    def read_after(self, number: int, *, up_to: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Read entries until there is none; beside the first the last known one again, once.

        Raises:
            CommitOverwritten: the last entry that was appended or read has been replaced.
        """
        confirm = self._begin_to_confirm(number)
        entries = self._log.read_after(number, up_to=up_to)
        next_entry = next(entries, None)
        confirm()
        if next_entry is None:
            return
        for found, body in chain([next_entry], entries):
            self._remember(_Entry(found, _digest(body)))
            yield found, body

    def _remember(self, entry: _Entry) -> None:
        if self._last is None or self._last.is_read_alone or self._last.number < entry.number:
            self._last = entry

    def _begin_to_confirm(self, number: int) -> Callable[[], None]:
        last = self._last
        if not self._checks.read_back or last is None or last.number != number or last.confirmed:
            return _nothing
        return self._log.objects.beside(lambda: self._confirm(number))

    def _confirm(self, number: int, *, is_before_append: bool = False) -> None:
        """Compare entry `number` with the store, if it is the last one and was not compared yet."""
        last = self._last
        if last is None or (last.is_read_alone and not is_before_append):
            return
        if last.number == number and not last.confirmed:
            self._compare(last)
            if self._last is last:
                self._last = _Entry(last.number, last.digest, confirmed=True)

    def _compare(self, entry: _Entry) -> None:
        found = self._log.read(entry.number)
        if found is not None and _digest(found) == entry.digest:
            return
        url = self._log.objects.url(self._log.key(entry.number))
        what = "is gone" if found is None else "was replaced by another writer's"
        logger.error("%s %s after it was committed", url, what)
        raise CommitOverwritten(
            f"{url}, entry {entry.number} of the log, {what} after it was committed: the store "
            "lets two writers create one object, or it was changed by hand. What this "
            "process committed by it is not in the log. Stop all writers of this instance and "
            "move it to a store that honours If-None-Match on PUT (`sleeper init` checks it); then "
            "run the jobs again with the same job ids, which adds only what is missing."
        )


def _digest(body: bytes) -> bytes:
    """Return a digest of what is never changed of an entry (`state.log_entry`).

    That is its first line; of format 1 what stands before its transactions, which a purge may take
    out: the entry's id and its time.
    """
    first = body.partition(b"\n")[0]
    if first.startswith(b'{"format":1,'):
        first = first.partition(b'"transactions"')[0]
    return sha256(first).digest()


# ---------------------------------------------------------------- followed log
#
# A transaction log that compares the last entry it has seen with the storage before it goes on.
#
# A reader goes on from an entry that it has seen, and a writer appends to it. Both look for the
# next number only, and would not notice that their entry is no longer there: because the instance
# was moved or deleted, or because an older copy was put in its place. A commit would then leave a
# hole in the log, and a job would count as committed whose rows are in no log.
#
# What is guaranteed:
#
# - In a folder the last entry is compared at each look and again before each commit, which costs a
#   `stat`; in memory it is read. A folder that is replaced after that, while the commit is written,
#   is noticed by the commit's temp file, which lies in the folder of before. Only the microseconds
#   between the comparison and the temp file are not covered.
# - In a bucket and in DynamoDB it is read again, beside the look, if it was read or appended more
#   than a minute ago. So a look costs one request as long as looks are frequent, and two after a
#   pause. Within that minute a handle may use an instance that was replaced: stop what writes to a
#   bucket before you restore it.
#
# An entry that is missing, but covered by a snapshot of the same state, is not needed: see
# `covered`.


TRUSTED_S: Final = 60.0
"""Where a read is a request, an entry is not read again for so long."""


def _none_covered() -> int:
    return 0


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
class _SeenEntry:
    """The last entry that was seen.

    Attributes:
        number: Its number.
        digest: Of its body; None if only its number is known, from a snapshot.
        stored_at: When it was stored; None where that is not used.
        seen_s: When it was read or appended, in ticks; when the log was opened if it was not read.
    """

    number: int
    digest: bytes | None
    stored_at: datetime | None
    seen_s: float


class FollowedLog(LogAround):
    """A `TransactionLog` that raises an error if the last entry it has seen is not there.

    Safe for many threads: each compares the last entry that any of them has seen.

    Args:
        log: The log.
        following: How it is followed.
    """

    def __init__(self, log: TransactionLog, following: Following) -> None:
        super().__init__(log)
        self._following = following
        self._opened_s = following.ticks_s()
        self._last: _SeenEntry | None = None

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
            logger.info("the entry before %d was not compared again: %s", number, failure)
        if not self._log.append(number, body):
            return False
        self._remember(number, body)
        return True

    def read_after(self, number: int, *, up_to: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Read entries until there is none, and compare the last one that was seen before.

        Raises:
            InstanceLost: it is not there, or another one.
            DataDamaged: it is not there, but a later snapshot is.
        """
        check = self._begin_check(number)
        entries = self._log.read_after(number, up_to=up_to)
        next_entry = next(entries, None)
        check()
        if next_entry is None:
            if number < self._following.first and self._last is None:
                self._following.found_empty()
            return
        for found, body in chain([next_entry], entries):
            self._remember(found, body)
            yield found, body

    def _begin_check(self, number: int) -> Callable[[], None]:
        """Begin to compare entry `number`, or a later one that was seen; return what waits for it.

        Nothing is compared before the log's first entry, and nothing that is not due.
        """
        last = self._last
        if last is None or last.number < number:
            if number < self._following.first:
                return self._following.check_empty if last is None else _nothing
            last = _SeenEntry(number, None, None, self._opened_s)
            if self._following.is_remote:
                self._last = last
        if not self._is_due(last):
            return _nothing
        return self._following.objects.beside(lambda: self._compare(last))

    def _is_due(self, entry: _SeenEntry) -> bool:
        if self._following.is_remote:
            passed_s = self._following.ticks_s() - entry.seen_s
            return not 0 <= passed_s <= TRUSTED_S
        stored_at = self._stored_at(entry.number)
        return stored_at is None or stored_at != entry.stored_at

    def _compare(self, entry: _SeenEntry) -> None:
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
        digest = _digest(body)
        if entry.digest is None:
            is_same = self._following.is_last(entry.number, body)
        else:
            is_same = digest == entry.digest
        if not is_same:
            raise self._following.lost(f"{about}is another one now")
        self._note(_SeenEntry(entry.number, digest, stored_at, self._following.ticks_s()))

    def _remember(self, number: int, body: bytes) -> None:
        stored_at = self._stored_at(number)
        self._note(_SeenEntry(number, _digest(body), stored_at, self._following.ticks_s()))

    def _stored_at(self, number: int) -> datetime | None:
        return self._log.stored_at(number) if self._following.is_dated else None

    def _note(self, entry: _SeenEntry) -> None:
        if self._last is None or self._last.number <= entry.number:
            self._last = entry
