"""Snapshots of a table's state as objects, and a store that keeps none."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sleeper.errors import BadRequest, ObjectNotFound, StorageFailed
from sleeper.ports.objects import Objects

logger = logging.getLogger(__name__)

_NEWEST: Final = "statestore/snapshots/newest"


@dataclass(frozen=True, slots=True)
class ObjectSnapshotStore:
    """A `SnapshotStore` with one object for each part.

    Two writers of one number hold the same state. So a part that exists already, even from a
    writer that died before the last part, is not written again.

    Attributes:
        objects: The table's objects.
        prefix: Prefix of the parts' keys; twenty digits, `-` and the part's name follow.
        last_part: The part that is written last and completes a snapshot.
        keeps_newest: Whether a copy of a new state is kept under one key, so that a reader finds it
            without a listing.
    """

    objects: Objects
    prefix: str = "statestore/snapshots/"
    last_part: str = "files.parquet"
    keeps_newest: bool = False

    def save(self, number: int, parts: Mapping[str, bytes]) -> bool:
        """Create each part in its order; an existing part is kept."""
        if not parts or list(parts)[-1] != self.last_part:
            raise BadRequest(
                f"the last part of a snapshot must be {self.last_part!r}; these are {list(parts)}"
            )
        try:
            created = [self.objects.create(self.key(number, name), parts[name]) for name in parts]
        except StorageFailed as error:
            logger.warning("snapshot %d was not saved: %s", number, error)
            raise
        logger.debug("saved snapshot %d", number)
        return created[-1]

    def numbers(self) -> tuple[int, ...]:
        """List the last parts; they show which snapshots are complete."""
        name = re.compile(rf"(\d{{20}})-{re.escape(self.last_part)}")
        keys = (info.key.removeprefix(self.prefix) for info in self.objects.listing(self.prefix))
        return tuple(int(found[1]) for key in keys if (found := name.fullmatch(key)))

    def newest(self) -> bytes | None:
        """Read the copy."""
        return self.objects.read(_NEWEST)

    def save_newest(self, body: bytes) -> None:
        """Put the copy."""
        self.objects.put(_NEWEST, body)

    def delete_before(self, number: int) -> int:
        """Delete the objects, also of snapshots that are not complete."""
        first = f"{self.prefix}{number:020d}-"
        listed = (info.key for info in self.objects.listing(self.prefix))
        old = [key for key in listed if key < first or key == _NEWEST]
        self.objects.delete(old)
        return len(old)

    def note_failure(self, what: str, error: Exception) -> None:
        """Log a warning."""
        logger.warning("%s: %s", what, error)

    def load(self, number: int, part: str) -> bytes:
        """Read one object."""
        key = self.key(number, part)
        body = self.objects.read(key)
        if body is None:
            raise ObjectNotFound(f"snapshot {number} has no part {part!r}: {key} does not exist")
        return body

    def key(self, number: int, part: str) -> str:
        """Return the key of one part of snapshot `number`."""
        return f"{self.prefix}{number:020d}-{part}"


class NoSnapshots:
    """A `SnapshotStore` without snapshots (rule STS-24)."""

    keeps_newest = False

    def save(self, number: int, parts: Mapping[str, bytes]) -> bool:
        """Drop the parts: nothing needs them."""
        return False

    def numbers(self) -> tuple[int, ...]:
        """Return no numbers."""
        return ()

    def newest(self) -> bytes | None:
        """Return None."""
        return None

    def save_newest(self, body: bytes) -> None:
        """Drop the copy: nothing needs it."""

    def delete_before(self, number: int) -> int:
        """Return 0: nothing is kept."""
        return 0

    def note_failure(self, what: str, error: Exception) -> None:
        """Log a warning."""
        logger.warning("%s: %s", what, error)

    def load(self, number: int, part: str) -> bytes:
        """Refuse: there is no snapshot.

        Raises:
            ObjectNotFound: always.
        """
        raise ObjectNotFound(f"there is no snapshot {number}: this table keeps none")
