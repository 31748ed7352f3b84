"""Snapshots of a table's state: bodies are bytes, `state.snapshot` gives them meaning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class SnapshotStore(Protocol):
    """Whole states of one table, each named by the number of its last transaction."""

    def save(self, number: int, parts: Mapping[str, bytes]) -> bool:
        """Store `parts` in their order; the last one makes the snapshot count.

        Returns:
            False when a snapshot of this number exists already: it is as good.
        """
        ...

    def numbers(self) -> tuple[int, ...]:
        """Return the numbers of all complete snapshots, ascending."""
        ...

    def load(self, number: int, part: str) -> bytes:
        """Return one part of snapshot `number`.

        Raises:
            ObjectNotFound: there is no such snapshot or part.
        """
        ...
