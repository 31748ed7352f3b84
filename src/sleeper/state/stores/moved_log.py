"""The log of a table whose state was moved to it: it has no entries from before the move."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime

from sleeper.errors import VersionNotFound
from sleeper.language.value_classes import dataclass
from sleeper.model.tables import StateMove
from sleeper.ports.objects import ObjectInfo
from sleeper.ports.transaction_log import TransactionLog


@dataclass(frozen=True, slots=True)
class MovedLog:
    """A `TransactionLog` whose first entry is the move of a table's state.

    Whoever reads on from an earlier entry, as a stream of Spark may, must not take the missing
    entries for the end of the log.

    Attributes:
        log: The log.
        here: The move, whose number the first entry has.
    """

    log: TransactionLog
    here: StateMove

    def append(self, number: int, body: bytes) -> bool:
        """Append an entry."""
        return self.log.append(number, body)

    def read(self, number: int) -> bytes | None:
        """Read an entry; None if it is from before the move."""
        return self.log.read(number) if number >= self.here.number else None

    def read_after(self, number: int) -> Iterator[tuple[int, bytes]]:
        """Read the entries after one.

        Raises:
            VersionNotFound: some of them are from before the move.
        """
        if number < self.here.number - 1:
            raise version_left_behind(number + 1, self.here)
        return self.log.read_after(number)

    def stored_at(self, number: int) -> datetime | None:
        """Ask when an entry was stored; unknown if it is from before the move."""
        return self.log.stored_at(number) if number >= self.here.number else None

    def writer_lock(self, meanwhile: Callable[[], object]) -> AbstractContextManager[None]:
        """Hold the log's advisory lock (see the port)."""
        return self.log.writer_lock(meanwhile)

    def sweep(
        self, before: datetime, *, delete: bool
    ) -> tuple[Sequence[ObjectInfo], Mapping[str, str]]:
        """Find what killed writers left (see the port)."""
        return self.log.sweep(before, delete=delete)

    def delete(self) -> None:
        """Delete the entries."""
        self.log.delete()


def version_left_behind(number: int, here: StateMove) -> VersionNotFound:
    """Return the error for a transaction that is not in the store that a state was moved to."""
    return VersionNotFound(
        f"transaction {number} is no longer there: transaction {here.number} moved the table's "
        f"state to {here.class_name}, and left earlier versions behind. Ask for transaction "
        f"{here.number} or a later one; a stream of Spark needs a new checkpoint and option 'from' "
        "= 'earliest' or 'latest'."
    )
