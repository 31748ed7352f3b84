"""The DynamoDB tables of one instance: made at first use, and read and written with patience.

Tables have the names and keys of upstream's, but for what decision 0061 tells.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final

from sleeper.errors import ObjectNotFound, StorageFailed
from sleeper.ports.ids import NewId
from sleeper.storage.aws.failures import aws_failure, error_code, vendor_errors
from sleeper.storage.aws.names import OWNER_TAG, owner_tag_value

logger = logging.getLogger(__name__)

Item = dict[str, Any]
"""An item, a key or a request, with attribute values as DynamoDB has them: `{"S": "text"}`."""

WRITES_MAX: Final = 100
"""How many items a transaction may write or check: Amazon's limit."""

_ATTEMPTS_MAX = 20
_ACTIVE_ATTEMPTS_MAX = 120
_ACTIVE_PAUSE = 10
"""The tenth pause, which is up to a second."""
_PASSING = {
    "InternalServerError",
    "ProvisionedThroughputExceeded",
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "ThrottlingError",
    "ThrottlingException",
    "TransactionConflict",
    "TransactionConflictException",
    "TransactionInProgressException",
}
_REFUSED = "ConditionalCheckFailed"
_PERMISSIONS = (
    "dynamodb:CreateTable, TagResource, DescribeTable, UpdateTimeToLive, Query, Scan, GetItem, "
)
_PERMISSION = f"{_PERMISSIONS}PutItem, UpdateItem, DeleteItem and ConditionCheckItem"


@dataclass(frozen=True, slots=True)
class DynamoTable:
    """What a table is made with.

    Attributes:
        name: Its name after the instance's prefix.
        key: Attributes of its key and their types: that of the partition, and that of the order.
        expiry: The attribute with the second (since 1970) after which Amazon deletes an item; None
            for a table whose items stay.
        required: Whether to raise an error where the table is missing; else it has no items then.
        indexes: Global secondary indexes by name: their keys, in the same form. They have whole
            items.
    """

    name: str
    key: tuple[tuple[str, str], ...]
    expiry: str | None = None
    indexes: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()
    required: bool = False


class DynamoTables:
    """Reads and writes items. Safe for threads.

    A table that is missing has no items; it is made before something is written to it. Where a
    table is required, it is made with the instance, and reads fail without it.

    Args:
        client: Returns this process' client of DynamoDB, which retries calls without an answer.
        prefix: What the names of the instance's tables begin with: `sleeper-<instance id>-`.
        pause: Waits before another attempt, with jitter, given how many there were.
        new_id: Makes ids of transactions: a transaction that is sent again is done once.
        owner: The URL of the instance, which a table that is made has as a tag.
    """

    def __init__(
        self,
        client: Callable[[], Any],
        prefix: str,
        *,
        pause: Callable[[int], None],
        new_id: NewId,
        owner: str | None = None,
    ) -> None:
        self._client, self._prefix = client, prefix
        self._pause, self._new_id, self._owner = pause, new_id, owner
        self._made: set[DynamoTable] = set()
        self._lock = Lock()

    def name(self, table: DynamoTable) -> str:
        """Return a table's full name."""
        return self._prefix + table.name

    def make(self, *tables: DynamoTable) -> None:
        """Make tables that are missing, and wait until they can be used."""
        with self._lock:
            missing = [table for table in tables if table not in self._made]
            for table in missing:
                self._create(table)
            for table in missing:
                self._wait_until_active(table)
                self._turn_on_expiry(table)
                self._made.add(table)

    def get(self, table: DynamoTable, key: Item) -> Item | None:
        """Return the item with a key, as the last write left it."""
        request = {"TableName": self.name(table), "Key": key, "ConsistentRead": True}
        try:
            found: Item | None = self._call("get_item", "read", table, **request).get("Item")
        except ObjectNotFound:
            if table.required:
                raise
            return None
        return found

    def query(
        self, table: DynamoTable, condition: str, values: Item, **options: Any
    ) -> Iterator[Item]:
        """Yield the items of one partition in the order of their keys, a page in memory.

        Args:
            table: The table. It is read as the last write left it; an index may lack the newest.
            condition: The key condition.
            values: What stands in the condition and in a filter.
            options: More of the request, such as IndexName.
        """
        yield from self._pages(
            "query",
            table,
            KeyConditionExpression=condition,
            ExpressionAttributeValues=values,
            ConsistentRead="IndexName" not in options,
            **options,
        )

    def scan(self, table: DynamoTable, **options: Any) -> Iterator[Item]:
        """Yield all items, a page in memory, as the last write left them."""
        yield from self._pages("scan", table, ConsistentRead=True, **options)

    def write_together(
        self, groups: Sequence[Sequence[Item]], guard: Item | None = None
    ) -> list[int] | None:
        """Write groups of items in one transaction, without those whose conditions fail.

        Args:
            groups: What to write: parts of a transaction. Those of a group are written together.
            guard: Another part, without whose condition nothing is written.

        Returns:
            The indexes of the groups that were written; None if the guard's condition failed.
            Nothing is written, and the guard is not asked, when no group is left.

        Raises:
            StorageFailed: DynamoDB did not answer, or others wrote the same items all the time.
        """
        left = list(range(len(groups)))
        before = [] if guard is None else [guard]
        token = self._new_id()
        for attempt in range(_ATTEMPTS_MAX):
            if not left:
                return []
            parts = before + [part for n in left for part in groups[n]]
            reasons = self._transact(parts, token)
            if reasons is None:
                return left
            if guard is not None and reasons[0] == _REFUSED:
                return None
            of_groups = iter(reasons[len(before) :])
            refused = {n for n in left if _REFUSED in [next(of_groups) for _ in groups[n]]}
            left = [n for n in left if n not in refused]
            if refused:
                token = self._new_id()  # it is another transaction
            else:
                logger.info("writing %d items again: %s", len(reasons), _told(reasons))
                self._pause(attempt)
        raise StorageFailed(
            f"cannot write to the tables {self._prefix}*: others wrote the same items in each of "
            f"{_ATTEMPTS_MAX} attempts, or there are too many calls. Try again later, or with "
            "fewer processes."
        )

    def _transact(self, parts: Sequence[Item], token: str) -> list[str] | None:
        """Write parts; return None, or a code for each if they are to be sent again."""
        try:
            self._client().transact_write_items(TransactItems=list(parts), ClientRequestToken=token)
        except vendor_errors() as error:
            code = error_code(error)
            if code in _PASSING:
                return [code, *[code] * (len(parts) - 1)]
            answer: Any = getattr(error, "response", {})
            reasons = [each.get("Code", "None") for each in answer.get("CancellationReasons", ())]
            others = set(reasons) - {_REFUSED, "None"} - _PASSING
            if len(reasons) != len(parts) or others:
                raise self._failure(error, "write to", f"the tables {self._prefix}*") from error
            return reasons
        return None

    def _pages(self, operation: str, table: DynamoTable, **request: Any) -> Iterator[Item]:
        request["TableName"] = self.name(table)
        while True:
            try:
                page = self._call(operation, "read", table, **request)
            except ObjectNotFound:
                if table.required:
                    raise
                return
            yield from page["Items"]
            if "LastEvaluatedKey" not in page:
                return
            request["ExclusiveStartKey"] = page["LastEvaluatedKey"]

    def _create(self, table: DynamoTable) -> None:
        if self._status(table) is not None:
            return
        attributes = dict(part for key in (table.key, *map(_second, table.indexes)) for part in key)
        request: dict[str, Any] = {
            "TableName": self.name(table),
            "KeySchema": _schema(table.key),
            "AttributeDefinitions": [
                {"AttributeName": name, "AttributeType": kind} for name, kind in attributes.items()
            ],
            "BillingMode": "PAY_PER_REQUEST",
        }
        if self._owner is not None:
            request["Tags"] = [{"Key": OWNER_TAG, "Value": owner_tag_value(self._owner)}]
        if table.indexes:
            request["GlobalSecondaryIndexes"] = [
                {
                    "IndexName": name,
                    "KeySchema": _schema(key),
                    "Projection": {"ProjectionType": "ALL"},
                }
                for name, key in table.indexes
            ]
        with self._unless("ResourceInUseException", "make", table):  # somebody else makes it
            self._client().create_table(**request)
            logger.info("made table %s", self.name(table))

    def _wait_until_active(self, table: DynamoTable) -> None:
        for _ in range(_ACTIVE_ATTEMPTS_MAX):
            if self._status(table) == "ACTIVE":
                return
            self._pause(_ACTIVE_PAUSE)
        raise StorageFailed(
            f"cannot use table {self.name(table)}: it is not active, a minute after it was made. "
            "Try again later."
        )

    def _turn_on_expiry(self, table: DynamoTable) -> None:
        if table.expiry is None:
            return
        name = self.name(table)
        found = self._call("describe_time_to_live", "read", table, TableName=name)
        if found["TimeToLiveDescription"]["TimeToLiveStatus"] in ("DISABLED", "DISABLING"):
            with self._unless("ValidationException", "change", table):  # somebody else did
                self._client().update_time_to_live(
                    TableName=name,
                    TimeToLiveSpecification={"Enabled": True, "AttributeName": table.expiry},
                )

    def _status(self, table: DynamoTable) -> str | None:
        try:
            found = self._call("describe_table", "read", table, TableName=self.name(table))
        except ObjectNotFound:
            return None
        return str(found["Table"]["TableStatus"])

    def _call(self, operation: str, verb: str, table: DynamoTable, **request: Any) -> Any:
        try:
            return getattr(self._client(), operation)(**request)
        except vendor_errors() as error:
            raise self._failure(error, verb, f"table {self.name(table)}") from error

    @contextmanager
    def _unless(self, code: str, verb: str, table: DynamoTable) -> Iterator[None]:
        """Suppress one refusal; translate other failures."""
        try:
            yield
        except vendor_errors() as error:
            if error_code(error) != code:
                raise self._failure(error, verb, f"table {self.name(table)}") from error
            logger.info("%s: %s", self.name(table), code)

    def _failure(self, error: Exception, verb: str, what: str) -> StorageFailed:
        writes = verb != "read"
        return aws_failure(error, verb, what, writes=writes, permission=_PERMISSION)


def _second(index: tuple[str, tuple[tuple[str, str], ...]]) -> tuple[tuple[str, str], ...]:
    return index[1]


def _schema(key: tuple[tuple[str, str], ...]) -> list[Mapping[str, str]]:
    kinds = ("HASH", "RANGE")
    return [
        {"AttributeName": name, "KeyType": kind}
        for (name, _), kind in zip(key, kinds, strict=False)
    ]


def _told(reasons: Sequence[str]) -> str:
    return ", ".join(sorted(set(reasons) - {"None"}))
