"""Snapshots of a table's state as objects, and a store that keeps none."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from sleeper.errors import BadRequest, ObjectNotFound, StorageFailed
from sleeper.ports.ids import NewId
from sleeper.ports.objects import Objects
from sleeper.state.table_index import ENTRIES_PER_CHECKPOINT, LogTableIndex
from sleeper.storage.transaction_log import (
    NO_CHECKS,
    CommitChecks,
    FollowedLog,
    Following,
    ObjectTransactionLog,
    open_log,
)

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

    def note_failure(self, what: str, error: Exception) -> None:
        """Log a warning."""
        logger.warning("%s: %s", what, error)

    def load(self, number: int, part: str) -> bytes:
        """Refuse: there is no snapshot.

        Raises:
            ObjectNotFound: always.
        """
        raise ObjectNotFound(f"there is no snapshot {number}: this table keeps none")


# ---------------------------------------------------------------- object index
#
# The table index as objects: a log of small entries, and checkpoints.

_ENTRIES = "tables/index/"
_NEWEST_COPY = "tables/checkpoints/newest.json"
_CHECKPOINTS_KEPT = 2


def object_table_index(
    objects: Objects,
    *,
    new_id: NewId,
    pause: Callable[[int], None],
    checks: CommitChecks = NO_CHECKS,
    begun: Callable[[], bytes | None] | None = None,
    following: Following | None = None,
) -> LogTableIndex:
    """Return the table index of an instance.

    Args:
        objects: The instance's objects.
        new_id: Makes a unique id for each entry.
        pause: Waits after a lost race; called with the number of races lost before.
        checks: The checks when an entry is committed.
        begun: Returns what `begin_index` began to read.
        following: How its log is followed; None for an index that is used once.
    """
    # A store that is not trusted might lose an entry to another one: its log alone decides.
    keeps_newest = objects.is_remote and not checks.read_back
    log = open_log(objects, _ENTRIES, checks)
    return LogTableIndex(
        log if following is None else FollowedLog(log, following),
        ObjectIndexCheckpoints(objects, keeps_newest=keeps_newest, begun=begun),
        entry_name=ObjectTransactionLog(objects, _ENTRIES).key,
        new_id=new_id,
        pause=pause,
    )


def begin_index(objects: Objects) -> Callable[[], bytes | None]:
    """Begin to read the copy of the newest tables; return what waits for it."""
    return objects.beside(partial(objects.read, _NEWEST_COPY))


@dataclass(frozen=True, slots=True)
class ObjectIndexCheckpoints:
    """`IndexCheckpoints` with one object for each checkpoint; the newest two are kept.

    Attributes:
        objects: The instance's objects.
        prefix: Prefix of the checkpoints' keys; twenty digits and `.json` follow.
        keeps_newest: Whether a copy of the newest checkpoint is kept under one key.
        begun: Returns that copy, if it was begun to be read before.
    """

    objects: Objects
    prefix: str = "tables/checkpoints/"
    keeps_newest: bool = False
    begun: Callable[[], bytes | None] | None = None

    def newest(self) -> tuple[str, bytes] | None:
        """Read the copy, or list the checkpoints and read the last one."""
        if self.keeps_newest:
            copy = self.begun() if self.begun is not None else self.objects.read(_NEWEST_COPY)
            if copy is not None:
                return _NEWEST_COPY, copy
        name = re.compile(re.escape(self.prefix) + r"\d{20}\.json")
        keys = [info.key for info in self.objects.listing(self.prefix)]
        for key in reversed([key for key in keys if name.fullmatch(key)]):
            body = self.objects.read(key)
            if body is not None:  # else a newer one was saved since the listing
                return key, body
        return None

    def save(self, number: int, body: bytes) -> None:
        """Create the object, then delete the one that is outdated."""
        outdated = number - _CHECKPOINTS_KEPT * ENTRIES_PER_CHECKPOINT
        try:
            self.objects.create(self._key(number), body)
            if outdated > 0:
                self.objects.delete([self._key(outdated)])
        except StorageFailed as error:
            logger.warning("checkpoint %s was not saved: %s", self._key(number), error)
        else:
            logger.debug("saved checkpoint %s", self._key(number))

    def save_newest(self, body: bytes) -> None:
        """Put the copy."""
        try:
            self.objects.put(_NEWEST_COPY, body)
        except StorageFailed as error:
            logger.warning("the copy of the newest tables was not saved: %s", error)

    def _key(self, number: int) -> str:
        return f"{self.prefix}{number:020d}.json"
