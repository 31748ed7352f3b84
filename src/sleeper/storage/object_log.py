"""A transaction log as objects, in a folder, a bucket or memory."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from hashlib import sha256
from typing import Final

from sleeper.errors import CommitOverwritten, StorageFailed
from sleeper.ports.objects import ObjectInfo, Objects
from sleeper.ports.transaction_log import TransactionLog

logger = logging.getLogger(__name__)

TABLE_LOG = "statestore/transactions/"
"""Prefix of the keys of a table's log entries, in the table's folder."""

_READS_AT_ONCE: Final = 32


@dataclass(frozen=True, slots=True)
class ObjectTransactionLog:
    """A `TransactionLog` with one object for each entry, created only if absent.

    Attributes:
        objects: The table's objects.
        prefix: Prefix of the entries' keys; twenty digits and the suffix follow.
        suffix: The end of the entries' keys.
    """

    objects: Objects
    prefix: str = TABLE_LOG
    suffix: str = ".json"

    def append(self, number: int, body: bytes) -> bool:
        """Create the object of entry `number`, if it is absent.

        If a reply is lost, the client library may repeat the request, and then gets the answer that
        our own entry has the number. So an entry that equals ours counts as appended.
        """
        key = self.key(number)
        try:
            appended = self.objects.create(key, body) or self.objects.read(key) == body
        except StorageFailed as error:
            logger.warning("it is unknown whether %s was appended: %s", key, error)
            raise
        if not appended:
            logger.info("%s was taken by another writer; the commit is retried", key)
        return appended

    def read(self, number: int) -> bytes | None:
        """Read one object."""
        return self.objects.read(self.key(number))

    def read_after(self, number: int) -> Iterator[tuple[int, bytes]]:
        """Read objects in order until there is none; where they are remote, several at once.

        Usually there is no new entry, so one is read first, then twice as many each time. Of those
        that are read at once a later one may be there and an earlier one not, if they were created
        meanwhile: the earlier one is then read again.
        """
        if not self.objects.is_remote:
            while (body := self.read(number + 1)) is not None:
                number += 1
                yield number, body
            return
        at_once = 1
        while True:
            numbers = range(number + 1, number + at_once + 1)
            answers = iter([self.objects.beside(partial(self.read, each)) for each in numbers])
            for answer in answers:
                body = answer()
                if body is None:
                    break
                number += 1
                yield number, body
            else:
                at_once = min(2 * at_once, _READS_AT_ONCE)
                continue
            if all(later() is None for later in answers):
                return
            at_once = 1

    def stored_at(self, number: int) -> datetime | None:
        """Ask when the object was stored."""
        return self.objects.stored_at(self.key(number))

    def writer_lock(self, meanwhile: Callable[[], object]) -> AbstractContextManager[None]:
        """Hold the log's advisory lock among writers of this machine (see the port)."""
        return self.objects.writer_lock(f"{self.prefix}turn", meanwhile)

    def sweep(
        self, before: datetime, *, delete: bool
    ) -> tuple[Sequence[ObjectInfo], Mapping[str, str]]:
        """Find nothing: an entry is one object."""
        return (), {}

    def delete(self) -> None:
        """Do nothing: entries are deleted with the table's folder."""

    def key(self, number: int) -> str:
        """Return the key of entry `number`."""
        return f"{self.prefix}{number:020d}{self.suffix}"


# ---------------------------------------------------------------- checked log
#
# A transaction log for stores that are not trusted to create an entry only if it is absent.


def _trust() -> None:
    """Do nothing: the default check."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitChecks:
    """The checks on a store that is not trusted.

    Attributes:
        before_append: Called before each append; raises an error if the store must not be used.
        read_back: Whether each entry is read again, after it was appended and at the next read.
    """

    before_append: Callable[[], None] = _trust
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
    number: int
    digest: bytes
    confirmed: bool = False


class CheckedTransactionLog:
    """A `TransactionLog` that reads entries back, and reports one that was replaced.

    A server that checks before it writes, and not atomically, may let two writers create one
    entry: it reports success to both, and the second one's entry stays. So the last entry that was
    appended or read is read again twice: at once, and when the log is next read.

    Args:
        log: The log.
        checks: What is checked.
    """

    def __init__(self, log: ObjectTransactionLog, checks: CommitChecks) -> None:
        self._log = log
        self._checks = checks
        self._last: _Entry | None = None

    def append(self, number: int, body: bytes) -> bool:
        """Append an entry, then read it back.

        Raises:
            CommitOverwritten: the entry is not what was appended, or the one before was replaced.
        """
        self._checks.before_append()
        if not self._checks.read_back:
            return self._log.append(number, body)
        self._confirm(number - 1)
        if not self._log.append(number, body):
            return False
        self._last = _Entry(number, _digest(body))
        self._compare(self._last)
        return True

    def read(self, number: int) -> bytes | None:
        """Read an entry."""
        return self._log.read(number)

    def read_after(self, number: int) -> Iterator[tuple[int, bytes]]:
        """Read entries until there is none; first read the last known one again, once.

        Raises:
            CommitOverwritten: the last entry that was appended or read has been replaced.
        """
        if self._checks.read_back:
            self._confirm(number)
        for found, body in self._log.read_after(number):
            self._remember(_Entry(found, _digest(body)))
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
        """Find nothing: an entry is one object."""
        return self._log.sweep(before, delete=delete)

    def delete(self) -> None:
        """Do nothing: entries are deleted with the table's folder."""

    def _remember(self, entry: _Entry) -> None:
        if self._last is None or self._last.number < entry.number:
            self._last = entry

    def _confirm(self, number: int) -> None:
        """Compare entry `number` with the store, if it is the last one and was not compared yet."""
        last = self._last
        if last is not None and last.number == number and not last.confirmed:
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
    return sha256(body).digest()
