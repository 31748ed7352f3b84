"""Makes the transaction of DynamoDB that replaces one state of a table by the next."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from sleeper.errors import StorageFailed
from sleeper.model.schema import Schema
from sleeper.state.state_difference import StateDifference
from sleeper.state.table_state import TableState
from sleeper.storage.aws.dynamo_tables import DynamoTable, DynamoTables, Item
from sleeper.storage.aws.state.newest_item import revision_key
from sleeper.storage.aws.state.state_items import (
    CLAIM,
    COMMITS,
    FILES,
    ITEM_TABLES,
    JOB,
    MERGED,
    PARTITIONS,
    REFERENCES,
    claim_item,
    file_item,
    file_key,
    item_bytes,
    job_item,
    merged_item,
    own_key,
    partition_item,
    partition_key,
    reference_item,
    reference_key,
    text,
)

_THERE: Final = "attribute_exists(TableId)"
_FREE: Final = "attribute_not_exists(TableId)"
_NO_TIME = datetime(1970, 1, 1, tzinfo=UTC)
_MERGED_PLACES = 1_000
"""More than one commit can merge. A state that is moved here may have more, of earlier commits."""


@dataclass(frozen=True, slots=True)
class CommitParts:
    """Makes the parts of transactions of one table.

    Attributes:
        name: Returns the full name of a table.
        table_id: The Sleeper table.
        schema: Its schema.
    """

    name: Callable[[DynamoTable], str]
    table_id: str
    schema: Schema

    def of(self, found: StateDifference, after: TableState) -> list[Item]:
        """Return a part for each change; its condition is what the last commit left there."""
        at = after.at or _NO_TIME
        parts = [*self._of_files(found, at), *self._of_others(found)]
        last_place = (after.number + 1) * _MERGED_PLACES - len(found.merged)
        for place, (leaf_id, (old, into)) in enumerate(found.merged.items(), last_place):
            item = None if into is None else merged_item(self.table_id, leaf_id, into, place)
            key = own_key(self.table_id, MERGED, leaf_id)
            parts.append(self._part(COMMITS, key, item, old))
        parts += (
            self._put(COMMITS, job_item(self.table_id, job_id, record))
            for job_id, record in found.jobs.recorded.items()
        )
        return parts

    def dropped_jobs(self, job_ids: Iterable[str]) -> list[Item]:
        """Return parts that delete records of jobs; they may be gone already."""
        keys = (own_key(self.table_id, JOB, job_id) for job_id in job_ids)
        return [{"Delete": {"TableName": self.name(COMMITS), "Key": key}} for key in keys]

    def _of_files(self, found: StateDifference, at: datetime) -> Iterator[Item]:
        for (filename, partition_id), (old, new) in found.references.items():
            key = reference_key(self.table_id, filename, partition_id)
            item = None if new is None else reference_item(self.table_id, new)
            yield self._part(REFERENCES, key, item, old)
        for filename, (was, now) in found.files.items():
            key = file_key(self.table_id, filename)
            counted = None if now is None else file_item(self.table_id, filename, now, at)
            part = self._part(FILES, key, counted, was)
            if was is not None:
                of_file = next(iter(part.values()))
                of_file["ConditionExpression"] = "#references = :before"
                of_file["ExpressionAttributeNames"] = {"#references": "References"}
                of_file["ExpressionAttributeValues"] = {":before": {"N": str(was.references)}}
            yield part

    def _of_others(self, found: StateDifference) -> Iterator[Item]:
        for partition_id, (old, new) in found.partitions.items():
            key = partition_key(self.table_id, partition_id)
            item = None if new is None else partition_item(self.table_id, new, self.schema)
            yield self._part(PARTITIONS, key, item, old)
        for job_id, (before, claim) in found.claims.items():
            key = own_key(self.table_id, CLAIM, job_id)
            item = None if claim is None else claim_item(self.table_id, job_id, claim)
            yield self._part(COMMITS, key, item, before)

    def _part(self, table: DynamoTable, key: Item, item: Item | None, old: object) -> Item:
        if item is None:
            deleted = {"Key": key, "ConditionExpression": _THERE}
            return {"Delete": {"TableName": self.name(table), **deleted}}
        put = self._put(table, item)
        put["Put"]["ConditionExpression"] = _FREE if old is None else _THERE
        return put

    def _put(self, table: DynamoTable, item: Item) -> Item:
        return {"Put": {"TableName": self.name(table), "Item": item}}


def put_sizes(parts: Iterable[Item]) -> list[int]:
    """Return the sizes of the items that parts of a transaction put, in bytes."""
    return [item_bytes(part["Put"]["Item"]) for part in parts if "Put" in part]


def part_key(part: Item) -> Item:
    """Return what has the key of a part of a transaction: the key, or the whole item."""
    [(_, request)] = part.items()
    found: Item = request.get("Key") or request["Item"]
    return found


def part_text(part: Item) -> str:
    """Return table and key of a part of a transaction, for errors."""
    [(_, request)] = part.items()
    keys = part_key(part)
    names = [name for name, _ in table_of(request["TableName"]).key]
    return f"{request['TableName']} " + ", ".join(f"{name}={keys[name]['S']!r}" for name in names)


def table_of(full_name: str) -> DynamoTable:
    """Return the table of a state that has this full name."""
    return next(each for each in ITEM_TABLES if full_name.endswith(f"-{each.name}"))


# ---------------------------------------------------------------- readers that wait
#
# Lets readers of a table's items read between two commits, while others commit all the time.
#
# A process that has committed last commits again without reading, so it is faster than any reader.
# A reader that has read in vain leaves a request in the revision item. Who commits reads that item
# anyway, and waits for a while before its next commit, once for each request.

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
                COMMITS,
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
                COMMITS,
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
