"""The transaction log of one table: numbered entries without gaps, 1, 2, 3, ...

Bodies are bytes here: `state.transaction_json` gives them meaning, an adapter in `storage` stores
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Protocol


class TransactionLog(Protocol):
    """One table's ordered entries. Creating entry n + 1 only if absent decides every race."""

    def append(self, number: int, body: bytes) -> bool:
        """Make `body` entry `number`, durably, if that number is free.

        A body carries its writer's fresh entry id, so no two writers have equal bodies.
        That makes `append` safe to repeat after a lost reply.

        Returns:
            True when entry `number` now holds `body`, written by this call or an earlier one;
            False when it holds another body.

        Raises:
            StorageFailed: no answer was to be had; the entry may or may not exist.
        """
        ...

    def read(self, number: int) -> bytes | None:
        """Return the body of entry `number`, or None when there is none."""
        ...

    def read_after(self, number: int) -> Iterator[tuple[int, bytes]]:
        """Yield (number, body) of every entry after `number`, in order, without gaps.

        When there is none this costs one look at the storage.
        """
        ...

    def stored_at(self, number: int) -> datetime | None:
        """Return a time (aware, UTC) by which entry `number` was stored; None if it is unknown.

        By the clock of the storage, and never from what the entry's writer says: a writer may be
        stopped between its look at the time and its entry. A log whose storage keeps no times
        returns the date of the next entry, as its writer looked at the time after it had read
        this one; for the last entry it returns None.
        """
        ...

    def writer_lock(self, pause: Callable[[int], None]) -> AbstractContextManager[None]:
        """Wait for others that are in a turn with this log, for a while; then go ahead.

        A courtesy among writers of one machine, so that none loses every race. It locks
        nothing: a log that cannot do it, or another machine's writer, just goes ahead.
        """
        ...
