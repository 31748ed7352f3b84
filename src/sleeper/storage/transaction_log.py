"""A transaction log whose entries are objects of a folder, a bucket or memory.

`followed_log.py` has the logs around it: one that reads entries back where a store is not trusted,
and one that notices when the instance was moved or replaced.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final

from sleeper.errors import InstanceLost, StorageFailed, StorageFull, StorageReadOnly
from sleeper.ports.objects import ObjectInfo, Objects

logger = logging.getLogger(__name__)

TABLE_LOG = "statestore/transactions/"
"""Prefix of the keys of a table's log entries, in the table's folder."""

_READS_AT_ONCE: Final = 32


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
        except (InstanceLost, StorageFull, StorageReadOnly):
            raise  # it was refused
        except StorageFailed as error:
            first = str(error).partition(". ")[0]
            logger.warning("it is unknown whether %s was appended: %.150s", key, first)
            raise
        if not appended:
            logger.info("%s was taken by another writer; the commit is retried", key)
        return appended

    def read(self, number: int) -> bytes | None:
        """Read one object."""
        return self.objects.read(self.key(number))

    def read_after(self, number: int, *, up_to: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Read objects in order until there is none; where they are remote, several at once.

        Usually there is no new entry, so one is read first, then twice as many each time; with
        `up_to` as many at once as there may be, and none beyond it. Of those
        that are read at once a later one may be there and an earlier one not, if they were created
        meanwhile: the earlier one is then read again.
        """
        last = sys.maxsize if up_to is None else up_to
        if not self.objects.is_remote:
            while number < last and (body := self.read(number + 1)) is not None:
                number += 1
                yield number, body
            return
        at_once = 1 if up_to is None else _READS_AT_ONCE
        while number < last:
            numbers = range(number + 1, min(number + at_once, last) + 1)
            answers = iter([self.objects.beside(partial(self.read, each)) for each in numbers])
            for answer in answers:
                body = answer()
                if body is None:
                    break
                number += 1
                yield number, body
            else:
                at_once = min(2 * at_once, _READS_AT_ONCE)
                continue
            if all(later() is None for later in answers):
                return
            at_once = 1

    def stored_at(self, number: int) -> datetime | None:
        """Ask when the object was stored."""
        return self.objects.stored_at(self.key(number))

    def replace(self, number: int, before: bytes, after: bytes) -> bool:
        """Replace the object, after it was compared."""
        key = self.key(number)
        if self.objects.read(key) != before:
            return False
        self.objects.put(key, after)
        return True

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
