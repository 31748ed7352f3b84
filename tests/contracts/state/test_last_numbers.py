"""Every state store tells the number of a table's last commit, many tables by one request."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pyarrow as pa
import pytest

import sleeper
from sleeper.storage.aws.clients import aws_client
from tests.contracts.s3_server import REGION, aws_endpoint, bucket, s3_credentials, s3_server

__all__ = ["aws_endpoint", "bucket", "s3_credentials", "s3_server"]

SCHEMA = pa.schema([("id", pa.string())])
STORES = {
    "DynamoDBTransactionLogStateStore": 1,
    "DynamoDBTransactionLogStateStoreNoSnapshots": 1,
    "DynamoDBStateStore": 1,
    "S3StateStore": 1,
    "TransactionLogStateStore": 0,
}
"""How many requests to DynamoDB three tables are that have not changed."""


@pytest.fixture
def instance(aws_endpoint, bucket):
    properties = {"sleeper.id": f"n-{uuid.uuid4().hex[:10]}", "sleeper.jobs.url": "sqs"}
    return sleeper.create_instance(f"s3://{bucket}/demo", properties)


@pytest.fixture
def calls(aws_endpoint):
    """The calls of DynamoDB."""
    found = []
    events = aws_client("dynamodb", REGION).meta.events
    events.register("before-call.dynamodb", lambda model, **_: found.append(model.name), "numbers")
    yield found
    events.unregister("before-call.dynamodb", unique_id="numbers")


@pytest.mark.parametrize("store", STORES)
def test_numbers_are_those_of_the_last_commits(instance, calls, store):
    """Given tables with and without commits since, then each number is right."""
    properties = {"sleeper.table.statestore.classname": store}
    tables = [
        instance.create_table(f"t{n}", SCHEMA, row_keys=["id"], properties=properties)
        for n in range(3)
    ]
    numbers_of = instance.jobs.tables.last_numbers

    first = numbers_of(instance.tables(), {})
    assert first == {table.table_id: table.refresh() for table in tables}
    calls.clear()
    assert numbers_of(instance.tables(), first) == first
    assert len(calls) == STORES[store]

    for _ in range(2):
        tables[1].ingest([{"id": "a"}])
    again = numbers_of(instance.tables(), first)

    assert again == {table.table_id: table.refresh() for table in tables}
    assert again[tables[1].table_id] == first[tables[1].table_id] + 2


def test_numbers_go_on_where_a_state_was_moved(instance):
    """Given a move to another store, then its commit counts, and the next ones too."""
    table = instance.create_table("t", SCHEMA, row_keys=["id"])
    numbers_of = instance.jobs.tables.last_numbers
    first = numbers_of(instance.tables(), {})
    table.ingest([{"id": "a"}])

    for store in ("DynamoDBTransactionLogStateStore", "S3StateStore", "TransactionLogStateStore"):
        table.migrate_state(store)
        assert numbers_of(instance.tables(), first) == {table.table_id: table.refresh()}
        table.ingest([{"id": "b"}])
        assert numbers_of(instance.tables(), first) == {table.table_id: table.refresh()}


def test_more_than_a_hundred_tables_are_asked_for_in_parts(instance, calls):
    """Amazon's limit is a hundred keys in a request."""
    properties = {"sleeper.table.statestore.classname": "DynamoDBTransactionLogStateStore"}
    instance.create_table("t", SCHEMA, row_keys=["id"], properties=properties)
    [record] = instance.tables()
    many = [replace(record, table_id=f"{n:08x}") for n in range(150)]
    calls.clear()

    known = {each.table_id: 3 for each in (record, *many)}
    numbers = instance.jobs.tables.last_numbers([record, *many], known)

    assert len(numbers) == 151
    assert calls == ["BatchGetItem"] * 2
