"""What DynamoDB tables are made with, and how they are made."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from sleeper.errors import ObjectNotFound, StorageFailed
from sleeper.language.value_classes import dataclass
from sleeper.storage.aws.failures import aws_failure, error_code, vendor_errors
from sleeper.storage.aws.names import OWNER_TAG, owner_tag_value

logger = logging.getLogger(__name__)

Keys = tuple[tuple[str, str], ...]
"""Attributes of a key and their types: that of the partition, then that of the order."""

_ACTIVE_ATTEMPTS_MAX: Final = 120
_ACTIVE_PAUSE: Final = 10
"""The tenth pause, which is up to a second."""
_PERMISSIONS: Final = (
    "dynamodb:CreateTable, TagResource, DescribeTable, UpdateTimeToLive, Query, Scan, GetItem, "
    "PutItem, UpdateItem, DeleteItem, BatchWriteItem and ConditionCheckItem"
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
) -> None:
    """Make tables that are missing, and wait until all can be used.

    Args:
        client: A client of DynamoDB.
        tables: The tables, by their full names.
        pause: Waits before another look, given how many there were.
        owner: The URL of the instance, which they have as a tag; None for no tag.
    """
    tag = {"Key": OWNER_TAG, "Value": owner_tag_value(owner or "")}
    tags = {} if owner is None else {"Tags": [tag]}
    for name, table in tables.items():
        if _status(client, name) is None:
            with _unless("ResourceInUseException", "make", name):  # somebody else makes it
                client.create_table(**_creation(name, table), **tags)
                logger.info("made table %s", name)
    for name, table in tables.items():
        _wait_until_active(client, name, pause)
        if table.expiry is not None:
            _turn_on_expiry(client, name, table.expiry)


def table_failure(error: Exception, verb: str, what: str) -> StorageFailed:
    """Translate the failure of a call of DynamoDB.

    Args:
        error: One of `vendor_errors`.
        verb: What was to be done: `read`, or something that changes.
        what: On what, such as `table sleeper-demo-transaction-log`.
    """
    return aws_failure(error, verb, what, writes=verb != "read", permission=_PERMISSIONS)


def other_keys(client: Any, name: str, table: DynamoTable) -> str | None:
    """Say which keys a table has if they are not those that it should have; else None."""
    try:
        found = client.describe_table(TableName=name)["Table"]
    except vendor_errors() as error:
        logger.warning("the keys of table %s are not known: %s", name, error)
        return None
    kinds = {each["AttributeName"]: each["AttributeType"] for each in found["AttributeDefinitions"]}
    names = [each["AttributeName"] for each in found["KeySchema"]]
    keys = tuple((each, kinds[each]) for each in names)
    return None if keys == table.key else f"{_told(keys)}, and should have {_told(table.key)}"


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


def _wait_until_active(client: Any, name: str, pause: Callable[[int], None]) -> None:
    for _ in range(_ACTIVE_ATTEMPTS_MAX):
        if _status(client, name) == "ACTIVE":
            return
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


def _status(client: Any, name: str) -> str | None:
    try:
        with _unless(None, "read", name):
            return str(client.describe_table(TableName=name)["Table"]["TableStatus"])
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


def _told(key: Keys) -> str:
    return ", ".join(f"{name} ({kind})" for name, kind in key)
