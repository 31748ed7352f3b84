"""Makes the transaction of DynamoDB that replaces one state of a table by the next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

from sleeper.language.value_classes import dataclass
from sleeper.state.stores.difference import StateDifference
from sleeper.state.table_state import TableState
from sleeper.state.value_json import RegionJson
from sleeper.storage.aws.dynamo_making import DynamoTable
from sleeper.storage.aws.dynamo_tables import Item
from sleeper.storage.aws.state.state_items import (
    CLAIM,
    FILES,
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
        regions: Encodes its regions.
    """

    name: Callable[[DynamoTable], str]
    table_id: str
    regions: RegionJson

    def of(self, found: StateDifference, after: TableState) -> list[Item]:
        """Return a part for each change; its condition is what the last commit left there."""
        at = after.at or _NO_TIME
        parts = [*self._of_files(found, at), *self._of_others(found)]
        last_place = (after.number + 1) * _MERGED_PLACES - len(found.merged)
        for place, (leaf_id, (old, into)) in enumerate(found.merged.items(), last_place):
            item = None if into is None else merged_item(self.table_id, leaf_id, into, place)
            key = own_key(self.table_id, MERGED, leaf_id)
            parts.append(self._part(PARTITIONS, key, item, old))
        parts += (
            self._put(PARTITIONS, job_item(self.table_id, job_id, record))
            for job_id, record in found.jobs.recorded.items()
        )
        return parts

    def dropped_jobs(self, job_ids: Iterable[str]) -> list[Item]:
        """Return parts that delete records of jobs; they may be gone already."""
        keys = (own_key(self.table_id, JOB, job_id) for job_id in job_ids)
        return [{"Delete": {"TableName": self.name(PARTITIONS), "Key": key}} for key in keys]

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
            item = None if new is None else partition_item(self.table_id, new, self.regions)
            yield self._part(PARTITIONS, key, item, old)
        for job_id, (before, claim) in found.claims.items():
            key = own_key(self.table_id, CLAIM, job_id)
            item = None if claim is None else claim_item(self.table_id, job_id, claim)
            yield self._part(PARTITIONS, key, item, before)

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


def told(part: Item) -> str:
    """Return table and key of a part of a transaction, for errors."""
    [(_, request)] = part.items()
    keys: dict[str, Any] = request.get("Key") or request["Item"]
    names = [name for name, _ in _table_of(request["TableName"]).key]
    return f"{request['TableName']} " + ", ".join(f"{name}={keys[name]['S']!r}" for name in names)


def _table_of(full_name: str) -> DynamoTable:
    return next(each for each in (REFERENCES, FILES, PARTITIONS) if full_name.endswith(each.name))
