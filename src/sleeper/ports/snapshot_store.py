"""The interface for snapshots of a table's state. `state.snapshot` encodes their bodies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


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

    def note_failure(self, what: str, error: Exception) -> None:
        """Log that a copy could not be used or saved, which changes no result."""
        ...

    def load(self, number: int, part: str) -> bytes:
        """Return one part of snapshot `number`.

        Raises:
            ObjectNotFound: the snapshot or part does not exist.
        """
        ...
