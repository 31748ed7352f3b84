"""A snapshot store that keeps none, for tables whose whole log is replayed."""

from __future__ import annotations

from collections.abc import Mapping

from sleeper.errors import ObjectNotFound


class NoSnapshots:
    """A `SnapshotStore` without snapshots (rule STS-24)."""

    def save(self, number: int, parts: Mapping[str, bytes]) -> bool:
        """Drop the parts: nothing needs them."""
        return False

    def numbers(self) -> tuple[int, ...]:
        """Return no numbers."""
        return ()

    def load(self, number: int, part: str) -> bytes:
        """Refuse: there is no snapshot.

        Raises:
            ObjectNotFound: always.
        """
        raise ObjectNotFound(f"there is no snapshot {number}: this table keeps none")
