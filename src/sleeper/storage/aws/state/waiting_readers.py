"""Lets readers of a table's items read between two commits, while others commit all the time.

A process that has committed last commits again without reading, so it is faster than any reader. A
reader that has read in vain leaves a request in the revision item. Who commits reads that item
anyway, and waits for a while before its next commit, once for each request.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from sleeper.errors import StorageFailed
from sleeper.storage.aws.dynamo_tables import DynamoTables, Item
from sleeper.storage.aws.state.newest_item import revision_key
from sleeper.storage.aws.state.state_items import PARTITIONS, text

logger = logging.getLogger(__name__)

_LOOKS_FIRST: Final = 4
_LOOKS_MAX: Final = 256
_BETWEEN_LOOKS: Final = 6
"""The sixth pause, which is up to an eighth of a second."""


class WaitingReaders:
    """The requests of readers of one table to its writers.

    Args:
        tables: The instance's DynamoDB tables.
        table_id: The Sleeper table.
        new_id: Makes an id for each request.
        pause: Waits, given how long: 0 for the shortest.
    """

    def __init__(
        self,
        tables: DynamoTables,
        table_id: str,
        *,
        new_id: Callable[[], str],
        pause: Callable[[int], None],
    ) -> None:
        self._tables, self._table_id = tables, table_id
        self._new_id, self._pause = new_id, pause
        self._seen: str | None = None
        self._answered: str | None = None

    def note(self, item: Item | None) -> None:
        """Note the request in a revision item that was read."""
        self._seen = None if item is None else _request_in(item)

    def ask(self, times: int) -> str | None:
        """Ask writers to wait, for longer the more `times` it was asked; return the request."""
        looks = min(_LOOKS_FIRST * 2**times, _LOOKS_MAX)
        request = f"{self._new_id()}|{looks}"
        try:
            self._tables.update(
                PARTITIONS,
                revision_key(self._table_id),
                "SET Waiting = :request",
                {":request": text(request)},
            )
        except StorageFailed as error:
            logger.info("writers of table %s are not asked to wait: %s", self._table_id, error)
            return None
        logger.info("asking writers of table %s to wait until its state is read", self._table_id)
        self._answered = request
        return request

    def end(self, request: str | None) -> None:
        """Let writers go on, if they wait for this request."""
        if request is None:
            return
        try:
            self._tables.update(
                PARTITIONS,
                revision_key(self._table_id),
                "REMOVE Waiting",
                {":request": text(request)},
                condition="Waiting = :request",
            )
        except StorageFailed as error:
            logger.info("writers of table %s may wait in vain: %s", self._table_id, error)

    def let_read(self, look: Callable[[], Item | None]) -> None:
        """Wait for a reader that has asked for it, before a commit: once for each request.

        Args:
            look: Reads the revision item.
        """
        request = self._seen
        if request is None or request == self._answered:
            return
        self._answered = request
        logger.info("waiting before a commit to table %s, for a reader", self._table_id)
        for _ in range(_looks_in(request)):
            self._pause(_BETWEEN_LOOKS)
            item = look()
            if item is None or _request_in(item) != request:
                return


def _request_in(item: Item) -> str | None:
    found: str | None = item.get("Waiting", {}).get("S")
    return found


def _looks_in(request: str) -> int:
    looks = request.rpartition("|")[2]
    return min(int(looks), _LOOKS_MAX) if looks.isdecimal() else 0
