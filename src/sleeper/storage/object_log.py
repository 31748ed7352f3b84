"""A table's transaction log and its snapshots as objects, in a folder, a bucket or memory."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime

from sleeper.errors import BadRequest, ObjectNotFound, StorageFailed
from sleeper.ports.objects import ObjectInfo, Objects

logger = logging.getLogger(__name__)

TABLE_LOG = "statestore/transactions/"
"""Prefix of the keys of a table's log entries, in the table's folder."""


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
        """Read objects one after the other until there is none."""
        while (body := self.read(number + 1)) is not None:
            number += 1
            yield number, body

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


@dataclass(frozen=True, slots=True)
class ObjectSnapshotStore:
    """A `SnapshotStore` with one object for each part.

    Two writers of one number hold the same state. So a part that exists already, even from a
    writer that died before the last part, is not written again.

    Attributes:
        objects: The table's objects.
        prefix: Prefix of the parts' keys; twenty digits, `-` and the part's name follow.
        last_part: The part that is written last and completes a snapshot.
    """

    objects: Objects
    prefix: str = "statestore/snapshots/"
    last_part: str = "files.parquet"

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
