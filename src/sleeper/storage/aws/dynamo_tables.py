"""The DynamoDB tables of one instance: made at first use, and read and written with patience.

Tables have the names and keys of upstream's, but for what decision 0061 tells.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from itertools import islice
from threading import Lock
from typing import Any, Final

from sleeper.errors import ObjectNotFound, StorageFailed
from sleeper.ports.ids import NewId
from sleeper.storage.aws.clients import (
    OWNER_TAG,
    aws_failure,
    error_code,
    owner_tag_value,
    vendor_errors,
)

# ---------------------------------------------------------------- how tables are made
#
# What DynamoDB tables are made with, and how they are made.

logger = logging.getLogger(__name__)

Keys = tuple[tuple[str, str], ...]
"""Attributes of a key and their types: that of the partition, then that of the order."""

_ACTIVE_ATTEMPTS_MAX: Final = 120
_ACTIVE_PAUSE: Final = 10
"""The tenth pause, which is up to a second."""
_NO_HISTORY: Final = ("UnknownOperationException", "NotImplemented")
_PERMISSIONS: Final = (
    "dynamodb:CreateTable, TagResource, DescribeTable, UpdateTimeToLive, UpdateContinuousBackups, "
    "Query, Scan, GetItem, PutItem, UpdateItem, DeleteItem, BatchWriteItem and ConditionCheckItem"
)


@dataclass(frozen=True, slots=True)
class DynamoTable:
    """What a table is made with.

    Attributes:
        name: Its name after the instance's prefix.
        key: Its key.
        expiry: The attribute with the second (since 1970) after which Amazon deletes an item; None
            for a table whose items stay.
        indexes: Global secondary indexes by name, and their keys. They have whole items.
        required: Whether a read without the table is an error; else it has no items then.
    """

    name: str
    key: Keys
    expiry: str | None = None
    indexes: tuple[tuple[str, Keys], ...] = ()
    required: bool = False


def make_tables(
    client: Any,
    tables: Mapping[str, DynamoTable],
    pause: Callable[[int], None],
    owner: str | None,
    noted: Callable[[Any], Any],
    protected: Collection[DynamoTable] = (),
) -> None:
    """Make tables that are missing, and wait until all can be used.

    Args:
        client: A client of DynamoDB.
        tables: The tables, by their full names.
        pause: Waits before another look, given how many there were.
        owner: The URL of the instance, which they have as a tag; None for no tag.
        noted: Gets what DynamoDB says of each table.
        protected: Those that DynamoDB is to refuse to delete.
    """
    tag = {"Key": OWNER_TAG, "Value": owner_tag_value(owner or "")}
    tags = {} if owner is None else {"Tags": [tag]}
    for name, table in tables.items():
        if _described(client, name) is None:
            with _unless("ResourceInUseException", "make", name):  # somebody else makes it
                kept = {"DeletionProtectionEnabled": True} if table in protected else {}
                client.create_table(**_creation(name, table), **tags, **kept)
                logger.info("made table %s", name)
    for name, table in tables.items():
        noted(_wait_until_active(client, name, pause))
        if table.expiry is not None:
            _turn_on_expiry(client, name, table.expiry)


def keep_history(client: Any, name: str) -> None:
    """Have a table restorable to any second of the last 35 days, unless it is already.

    A server that cannot do that is told in the log.

    Raises:
        StorageFailed: DynamoDB refuses it, or does not answer.
    """
    try:
        client.update_continuous_backups(
            TableName=name,
            PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True},
        )
    except vendor_errors() as error:
        if error_code(error) not in _NO_HISTORY:
            raise table_failure(error, "keep the history of", f"table {name}") from error
        logger.warning("table %s cannot be restored to a time: this server keeps no history", name)


def table_failure(error: Exception, verb: str, what: str) -> StorageFailed:
    """Translate the failure of a call of DynamoDB.

    Args:
        error: One of `vendor_errors`.
        verb: What was to be done: `read`, or something that changes.
        what: On what, such as `table sleeper-demo-transaction-log`.
    """
    return aws_failure(error, verb, what, writes=verb != "read", permission=_PERMISSIONS)


def other_keys(client: Any, name: str, table: DynamoTable) -> str | None:
    """Say which keys a table has if they are not those that it should have.

    None if they are, if there is no such table, and if nobody may look.
    """
    try:
        found = client.describe_table(TableName=name)["Table"]
    except vendor_errors() as error:
        if error_code(error) != "ResourceNotFoundException":
            logger.warning("the keys of table %s are not known: %s", name, error)
        return None
    kinds = {each["AttributeName"]: each["AttributeType"] for each in found["AttributeDefinitions"]}
    names = [each["AttributeName"] for each in found["KeySchema"]]
    keys = tuple((each, kinds[each]) for each in names)
    return (
        None if keys == table.key else f"{_key_text(keys)}, and should have {_key_text(table.key)}"
    )


def _creation(name: str, table: DynamoTable) -> dict[str, Any]:
    keys = (table.key, *(key for _, key in table.indexes))
    attributes = dict(part for key in keys for part in key)
    request: dict[str, Any] = {
        "TableName": name,
        "KeySchema": _schema(table.key),
        "AttributeDefinitions": [
            {"AttributeName": name, "AttributeType": kind} for name, kind in attributes.items()
        ],
        "BillingMode": "PAY_PER_REQUEST",
    }
    if table.indexes:
        request["GlobalSecondaryIndexes"] = [
            {
                "IndexName": name,
                "KeySchema": _schema(key),
                "Projection": {"ProjectionType": "ALL"},
            }
            for name, key in table.indexes
        ]
    return request


def _schema(key: Keys) -> list[Mapping[str, str]]:
    kinds = ("HASH", "RANGE")
    return [
        {"AttributeName": name, "KeyType": kind}
        for (name, _), kind in zip(key, kinds, strict=False)
    ]


def _wait_until_active(client: Any, name: str, pause: Callable[[int], None]) -> Any:
    for _ in range(_ACTIVE_ATTEMPTS_MAX):
        found = _described(client, name)
        if found is not None and found["Table"]["TableStatus"] == "ACTIVE":
            return found
        pause(_ACTIVE_PAUSE)
    raise StorageFailed(
        f"cannot use table {name}: it is not active, a minute after it was made. Try again later."
    )


def _turn_on_expiry(client: Any, name: str, attribute: str) -> None:
    with _unless(None, "read", name):
        found = client.describe_time_to_live(TableName=name)
    if found["TimeToLiveDescription"]["TimeToLiveStatus"] in ("DISABLED", "DISABLING"):
        with _unless("ValidationException", "change", name):  # somebody else did
            client.update_time_to_live(
                TableName=name,
                TimeToLiveSpecification={"Enabled": True, "AttributeName": attribute},
            )


def _described(client: Any, name: str) -> Any:
    """Return what DynamoDB says of a table; None if there is none."""
    try:
        with _unless(None, "read", name):
            return client.describe_table(TableName=name)
    except ObjectNotFound:
        return None


@contextmanager
def _unless(code: str | None, verb: str, name: str) -> Iterator[None]:
    """Suppress one refusal; translate other failures."""
    try:
        yield
    except vendor_errors() as error:
        if error_code(error) != code or code is None:
            raise table_failure(error, verb, f"table {name}") from error
        logger.info("%s: %s", name, code)


def _key_text(key: Keys) -> str:
    return ", ".join(f"{name} ({kind})" for name, kind in key)


Item = dict[str, Any]
"""An item, a key or a request, with attribute values as DynamoDB has them: `{"S": "text"}`."""

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def number(value: float) -> Item:
    """Return a number as a value of an attribute."""
    return {"N": str(value)}


def as_microseconds(time: datetime) -> int:
    """Return an aware time as microseconds since 1970."""
    return (time - EPOCH) // _MICROSECOND


def as_time(microseconds: int) -> datetime:
    """Return the time (aware, UTC) that `as_microseconds` was given."""
    return EPOCH + microseconds * _MICROSECOND


WRITES_MAX: Final = 100
"""How many items a transaction may write or check: Amazon's limit."""

_DELETED_TOGETHER, _READ_TOGETHER = 25, 100
"""Amazon's limits."""
_ATTEMPTS_MAX = 20
_ATTEMPTS_AFTER_RETRIES_MAX = 3
"""Attempts of a write that boto3 has tried several times already, for up to ten seconds."""
_CONFLICTS = {"TransactionConflict", "TransactionConflictException"}
_PASSING = _CONFLICTS | {
    "InternalServerError",
    "ProvisionedThroughputExceeded",
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "ThrottlingError",
    "ThrottlingException",
    "TransactionInProgressException",
}
_REFUSED = "ConditionalCheckFailed"
_REFUSED_ALONE = "ConditionalCheckFailedException"


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
        self._last_answer: datetime | None = None

    @property
    def last_answer(self) -> datetime | None:
        """When the server answered last, by its own clock, to the second; None if it said none."""
        return self._last_answer

    def name(self, table: DynamoTable) -> str:
        """Return a table's full name."""
        return self._prefix + table.name

    def make(self, *tables: DynamoTable, protected: Collection[DynamoTable] = ()) -> None:
        """Make tables that are missing, and wait until they can be used.

        Args:
            tables: The tables.
            protected: Those of them that DynamoDB is to refuse to delete, if they are made now.
        """
        with self._lock:
            missing = {self.name(each): each for each in tables if each not in self._made}
            make_tables(self._client(), missing, self._pause, self._owner, self._noted, protected)
            self._made.update(tables)

    def keep_history(self, *tables: DynamoTable) -> None:
        """Have tables restorable to any second of the last 35 days."""
        for table in tables:
            keep_history(self._client(), self.name(table))

    def other_keys(self, table: DynamoTable) -> str | None:
        """Say which keys a table has, and which it should have; None if they are the same."""
        return other_keys(self._client(), self.name(table), table)

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

    def get_many(self, table: DynamoTable, keys: Iterable[Item], names: str) -> list[Item]:
        """Return attributes of the items with some keys, maybe as they were a moment ago."""
        ahead, found = iter(keys), list[Item]()
        while batch := list(islice(ahead, _READ_TOGETHER)):
            left: Item = {self.name(table): {"Keys": batch, "ProjectionExpression": names}}
            for attempt in range(_ATTEMPTS_MAX):
                if attempt:
                    self._pause(attempt)
                answer = self._call("batch_get_item", "read", table, RequestItems=left)
                found += answer["Responses"].get(self.name(table), ())
                left = answer.get("UnprocessedKeys", {})
                if not left:
                    break
            else:
                raise self._contended()
        return found

    def query(
        self,
        table: DynamoTable,
        condition: str,
        values: Item,
        *,
        must_exist: bool = False,
        **options: Any,
    ) -> Iterator[Item]:
        """Yield the items of one partition in the order of their keys, a page in memory.

        Args:
            table: The table. It is read as the last write left it; an index may lack the newest.
            condition: The key condition.
            values: What stands in the condition and in a filter.
            must_exist: Whether a missing table is an error (ObjectNotFound), and not one without
                items.
            options: More of the request, such as IndexName.
        """
        yield from self._pages(
            "query",
            table,
            must_exist=must_exist,
            KeyConditionExpression=condition,
            ExpressionAttributeValues=values,
            ConsistentRead="IndexName" not in options,
            **options,
        )

    def scan(self, table: DynamoTable, **options: Any) -> Iterator[Item]:
        """Yield all items, a page in memory, as the last write left them."""
        yield from self._pages("scan", table, ConsistentRead=True, **options)

    def put_new(self, table: DynamoTable, item: Item, *, make: bool = False) -> Item | None:
        """Store an item if its key is free; return None, or the item that had the key.

        That may be this item itself, from an attempt whose reply was lost. It is empty if the item
        that had the key was deleted meanwhile.

        Args:
            table: The table.
            item: The item.
            make: Whether to make the table if it is missing; else that is an error.

        Raises:
            ObjectNotFound: the table is missing.
            StorageFailed: DynamoDB did not answer, or there were too many calls all the time.
        """
        request = {
            "TableName": self.name(table),
            "Item": item,
            "ConditionExpression": f"attribute_not_exists({table.key[0][0]})",
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        try:
            self._write("put_item", table, request)
        except ObjectNotFound:
            if not make:
                raise
            self.make(table)
            return self.put_new(table, item)
        except _RefusedError as refused:
            key = {name: item[name] for name, _ in table.key}
            return refused.item or self.get(table, key) or {}
        return None

    def update(
        self,
        table: DynamoTable,
        key: Item,
        expression: str,
        values: Item,
        *,
        condition: str | None = None,
    ) -> Item | None:
        """Change an item that exists; return it as it is then, or None if it was not changed.

        Args:
            table: The table.
            key: The item's key.
            expression: The update expression.
            values: What stands in the expression and in the condition.
            condition: What must be true of the item; None for nothing more.
        """
        exists = f"attribute_exists({table.key[0][0]})"
        request = {
            "TableName": self.name(table),
            "Key": key,
            "UpdateExpression": expression,
            "ExpressionAttributeValues": values,
            "ConditionExpression": f"{exists} AND {condition}" if condition else exists,
            "ReturnValues": "ALL_NEW",
        }
        try:
            changed: Item = self._write("update_item", table, request)["Attributes"]
        except (_RefusedError, ObjectNotFound):
            return None
        return changed

    def delete(self, table: DynamoTable, keys: Iterable[Item]) -> int:
        """Delete items by their keys, 25 in a call; return how many keys there were."""
        ahead, deleted = iter(keys), 0
        while batch := list(islice(ahead, _DELETED_TOGETHER)):
            self._delete_together(table, [{"DeleteRequest": {"Key": key}} for key in batch])
            deleted += len(batch)
        return deleted

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
                logger.info("writing %d items again: %s", len(reasons), _reasons_text(reasons))
                self._pause(attempt)
        raise self._contended()

    def write_all(self, parts: Sequence[Item], token: str) -> list[int]:
        """Write parts in one transaction, all or none.

        Args:
            parts: The parts of the transaction.
            token: Its id: if it was written before, it is not written again.

        Returns:
            The indexes of the parts whose conditions failed; none if it was written.

        Raises:
            ObjectNotFound: a table is missing.
            StorageFailed: DynamoDB did not answer, or others wrote the same items all the time.
        """
        for attempt in range(_ATTEMPTS_MAX):
            reasons = self._transact(parts, token)
            if reasons is None:
                return []
            if not _PASSING.intersection(reasons):  # else conditions may be of unfinished writes
                return [n for n, reason in enumerate(reasons) if reason == _REFUSED]
            logger.info("writing %d items again: %s", len(reasons), _reasons_text(reasons))
            self._pause(attempt)
        raise self._contended()

    def _contended(self) -> StorageFailed:
        return StorageFailed(
            f"cannot write to the tables {self._prefix}*: others wrote the same items in each of "
            f"{_ATTEMPTS_MAX} attempts, or there are too many calls. Try again later, or with "
            "fewer processes."
        )

    def _delete_together(self, table: DynamoTable, requests: list[Item]) -> None:
        left: Item = {self.name(table): requests}
        for attempt in range(_ATTEMPTS_MAX):
            done = self._write("batch_write_item", table, {"RequestItems": left})
            left = done.get("UnprocessedItems", {})
            if not left:
                return
            logger.info("deleting from %s again: not all items were deleted", self.name(table))
            self._pause(attempt)
        raise StorageFailed(
            f"cannot delete items of {self.name(table)}: there are too many calls. Try again "
            "later, or with fewer processes."
        )

    def _transact(self, parts: Sequence[Item], token: str) -> list[str] | None:
        """Write parts; return None, or a code for each if they are to be sent again."""
        try:
            client = self._client()
            request = {"TransactItems": list(parts), "ClientRequestToken": token}
            self._noted(client.transact_write_items(**request))
        except vendor_errors() as error:
            code = error_code(error)
            if code in _PASSING:
                return [code, *[code] * (len(parts) - 1)]
            answer: Any = getattr(error, "response", None) or {}
            reasons = [each.get("Code", "None") for each in answer.get("CancellationReasons", ())]
            others = set(reasons) - {_REFUSED, "None"} - _PASSING
            if len(reasons) != len(parts) or others:
                raise table_failure(error, "write to", f"the tables {self._prefix}*") from error
            return reasons
        return None

    def _pages(
        self, operation: str, table: DynamoTable, *, must_exist: bool = False, **request: Any
    ) -> Iterator[Item]:
        request["TableName"] = self.name(table)
        while True:
            try:
                page = self._call(operation, "read", table, **request)
            except ObjectNotFound:
                if must_exist or table.required:
                    raise
                return
            yield from page["Items"]
            if "LastEvaluatedKey" not in page:
                return
            request["ExclusiveStartKey"] = page["LastEvaluatedKey"]

    def _call(self, operation: str, verb: str, table: DynamoTable, **request: Any) -> Any:
        try:
            return self._noted(getattr(self._client(), operation)(**request))
        except vendor_errors() as error:
            raise self._failure(error, verb, table) from error

    def _noted(self, answer: Any) -> Any:
        """Note when the server answered, and return the answer."""
        date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
        if date is not None:
            with suppress(ValueError):  # a proxy has its own ideas
                self._last_answer = parsedate_to_datetime(date).astimezone(UTC)
        return answer

    def _write(self, operation: str, table: DynamoTable, request: Item) -> Any:
        """Write to one table, again after a pause while others write the same, or too much.

        Raises:
            _RefusedError: the condition failed.
        """
        for attempt in range(_ATTEMPTS_MAX):
            try:
                return self._noted(getattr(self._client(), operation)(**request))
            except vendor_errors() as error:
                code = error_code(error)
                if code == _REFUSED_ALONE:
                    answer: Any = getattr(error, "response", None) or {}
                    raise _RefusedError(answer.get("Item")) from error
                attempts_max = _ATTEMPTS_MAX if code in _CONFLICTS else _ATTEMPTS_AFTER_RETRIES_MAX
                if code not in _PASSING or attempt + 1 >= attempts_max:
                    raise self._failure(error, "write to", table) from error
            logger.info("writing to %s again: %s", self.name(table), code)
            self._pause(attempt)
        raise AssertionError("the last attempt returns or raises")

    def _failure(self, error: Exception, verb: str, table: DynamoTable) -> StorageFailed:
        name = self.name(table)
        if error_code(error) == "ValidationException" and (
            keys := other_keys(self._client(), name, table)
        ):
            return StorageFailed(
                f"cannot {verb} table {name}: it has the keys {keys}. Another program made it: "
                "remove it, or give this instance an id of its own."
            )
        failure = table_failure(error, verb, f"table {name}")
        if table.required and isinstance(failure, ObjectNotFound):
            return ObjectNotFound(
                f"cannot {verb} table {name}: it does not exist, although it was made with the "
                "instance. Check AWS_REGION; if somebody deleted it, restore it from its backup in "
                "DynamoDB."
            )
        return failure


class _RefusedError(Exception):
    """The condition of a write failed; `item` is what has the key, if the answer told it."""

    def __init__(self, item: Item | None) -> None:
        super().__init__()
        self.item = item


def _reasons_text(reasons: Sequence[str]) -> str:
    return ", ".join(sorted(set(reasons) - {"None"}))
