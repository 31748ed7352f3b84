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

    def load(self, number: int, part: str) -> bytes:
        """Return one part of snapshot `number`.

        Raises:
            ObjectNotFound: the snapshot or part does not exist.
        """
        ...
