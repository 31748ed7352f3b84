"""The interface of a transaction log: entries numbered 1, 2, 3, ... without gaps.

Bodies are bytes: `state.transaction_json` encodes them, and an adapter in `storage` stores them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Protocol

from sleeper.ports.objects import ObjectInfo


class TransactionLog(Protocol):
    """The ordered entries of one table. An entry is created only if its number is free."""

    def append(self, number: int, body: bytes) -> bool:
        """Store `body` as entry `number`, durably, if that number is free.

        A body contains its writer's new entry id, so no two writers have equal bodies, and
        `append` can be repeated after a lost reply.

        Returns:
            True if entry `number` now holds `body`, written by this call or an earlier one;
            False if it holds another body.

        Raises:
            StorageFailed: there was no answer; the entry may or may not exist.
        """
        ...

    def read(self, number: int) -> bytes | None:
        """Return the body of entry `number`, or None if there is none."""
        ...

    def read_after(self, number: int, *, up_to: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Yield (number, body) of every entry after `number`, in order, without gaps.

        If there is none, this costs one read.

        Args:
            number: The entry before the first one.
            up_to: The last entry that is wanted; one that is there, so that a log whose reads are
                requests sends many at once from the first.
        """
        ...

    def stored_at(self, number: int) -> datetime | None:
        """Return a time (aware, UTC) by which entry `number` was stored; None if it is unknown.

        By the clock of the storage, and never from what the entry's writer says: a writer may be
        stopped between its look at the time and its entry. A log whose storage keeps no times
        returns that of the next entry, as its writer looked at the time after it had read this
        one; for the last entry, the time at which somebody asked first, if it can keep that.
        """
        ...

    def replace(self, number: int, before: bytes, after: bytes) -> bool:
        """Put `after` in the place of entry `number`, if that is `before`; False if it is not.

        For entries out of which keys are taken. Where the storage cannot compare and put at once,
        two processes that do so could each undo what the other has done: purges take turns.

        Raises:
            StorageFailed: there was no answer; it may be replaced or not.
        """
        ...

    def writer_lock(self, meanwhile: Callable[[], object]) -> AbstractContextManager[None]:
        """Hold an advisory lock among writers of this machine; wait for it for a while.

        `meanwhile` is called after each look while others have the lock, and waits a little.

        It lets writers take turns, so that none loses every race. It does not exclude
        writers: some logs have no lock, and writers on other machines do not see it.
        """
        ...

    def sweep(
        self, before: datetime, *, delete: bool
    ) -> tuple[Sequence[ObjectInfo], Mapping[str, str]]:
        """Find objects in the table's folder that killed writers left, and no entry will need.

        There are none where an entry is one object.

        Args:
            before: Only objects that were stored before this time count.
            delete: Whether to delete them.

        Returns:
            The objects, and why some could not be deleted, by name.
        """
        ...

    def delete(self) -> None:
        """Delete the entries, as far as they are not objects in the table's folder.

        For a table that was deleted, with its folder. It may be repeated.
        """
        ...


class LogAround:
    """The base of a `TransactionLog` that adds something to another one, to which it passes calls.

    Args:
        log: The other one.
    """

    def __init__(self, log: TransactionLog) -> None:
        self._log = log

    def append(self, number: int, body: bytes) -> bool:
        """Append an entry."""
        return self._log.append(number, body)

    def read(self, number: int) -> bytes | None:
        """Read an entry."""
        return self._log.read(number)

    def read_after(self, number: int, *, up_to: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Read the entries after one."""
        return self._log.read_after(number, up_to=up_to)

    def stored_at(self, number: int) -> datetime | None:
        """Ask when an entry was stored."""
        return self._log.stored_at(number)

    def replace(self, number: int, before: bytes, after: bytes) -> bool:
        """Put another body in the place of an entry."""
        return self._log.replace(number, before, after)

    def writer_lock(self, meanwhile: Callable[[], object]) -> AbstractContextManager[None]:
        """Hold the log's advisory lock."""
        return self._log.writer_lock(meanwhile)

    def sweep(
        self, before: datetime, *, delete: bool
    ) -> tuple[Sequence[ObjectInfo], Mapping[str, str]]:
        """Find what killed writers left."""
        return self._log.sweep(before, delete=delete)

    def delete(self) -> None:
        """Delete the entries."""
        self._log.delete()


# ---------------------------------------------------------------- snapshot store
#
# The interface for snapshots of a table's state. `state.snapshot` encodes their bodies.


class SnapshotStore(Protocol):
    """Snapshots of one table's state, each named by the number of its last transaction."""

    def save(self, number: int, parts: Mapping[str, bytes]) -> bool:
        """Store `parts` in their order; the last part completes the snapshot.

        Returns:
            False if a snapshot of this number exists already: it holds the same state.
        """
        ...

    def numbers(self) -> tuple[int, ...]:
        """Return the numbers of all complete snapshots, ascending."""
        ...

    @property
    def keeps_newest(self) -> bool:
        """Whether it keeps a copy of a new state: where a listing costs a request."""
        ...

    def newest(self) -> bytes | None:
        """Return what `save_newest` stored last, by any process; None if there is nothing.

        It may be older than other snapshots: of two writers the slower one comes last.
        """
        ...

    def save_newest(self, body: bytes) -> None:
        """Store a copy of a new state in place of the last one; only where it `keeps_newest`.

        Raises:
            StorageFailed: it is unknown which one is stored.
        """
        ...

    def delete_before(self, number: int) -> int:
        """Delete all that is kept of states before transaction `number`; return how many objects.

        The copy of a new state goes too, whatever its number: the next commits write another.

        Raises:
            StorageFailed: something may be left.
        """
        ...

    def note_failure(self, what: str, error: Exception) -> None:
        """Log that a copy could not be used or saved, which changes no result."""
        ...

    def load(self, number: int, part: str) -> bytes:
        """Return one part of snapshot `number`.

        Raises:
            ObjectNotFound: the snapshot or part does not exist.
        """
        ...
