"""The table index as objects: a log of small entries, and checkpoints."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from sleeper.errors import StorageFailed
from sleeper.ports.ids import NewId
from sleeper.ports.objects import Objects
from sleeper.state.table_index import ENTRIES_PER_CHECKPOINT, LogTableIndex
from sleeper.storage.followed_log import NO_CHECKS, CommitChecks, FollowedLog, Following, open_log
from sleeper.storage.transaction_log import ObjectTransactionLog

logger = logging.getLogger(__name__)

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
    log = open_log(objects, _ENTRIES, checks)

    def is_last(number: int, body: bytes) -> bool:
        return index.is_last(number, body)

    if following is not None:
        log = FollowedLog(log, replace(following, is_last=is_last))
    index = LogTableIndex(
        log,
        ObjectIndexCheckpoints(objects, keeps_newest=objects.is_remote, begun=begun),
        entry_name=ObjectTransactionLog(objects, _ENTRIES).key,
        new_id=new_id,
        pause=pause,
        # A store that is not trusted might lose an entry to another one: its log alone decides.
        read_beside=objects.beside if objects.is_remote and checks.read_back else None,
    )
    return index


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

    def newest(self, *, with_copy: bool = True) -> tuple[str, bytes] | None:
        """Read the copy, or list the checkpoints and read the last one."""
        if self.keeps_newest and with_copy:
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
