"""`verify` on instances in buckets, with each state store."""

from __future__ import annotations

import uuid

import boto3
import pyarrow as pa
import pytest

import sleeper
from tests.contracts.s3_server import REGION, aws_endpoint, bucket, s3_credentials, s3_server

__all__ = ["aws_endpoint", "bucket", "s3_credentials", "s3_server"]

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.string())])
STORES = (
    "TransactionLogStateStore",
    "DynamoDBTransactionLogStateStore",
    "DynamoDBTransactionLogStateStoreNoSnapshots",
    "DynamoDBStateStore",
    "S3StateStore",
)


@pytest.fixture
def instance(aws_endpoint, bucket):
    return sleeper.create_instance(
        f"s3://{bucket}/demo", {"sleeper.id": f"ver-{uuid.uuid4().hex[:8]}"}
    )


def filled(instance, store="TransactionLogStateStore"):
    table = instance.create_table(
        "t",
        SCHEMA,
        row_keys=["id"],
        split_points=[10],
        properties={"sleeper.table.statestore.classname": store},
    )
    for first in (0, 5):
        table.ingest([{"id": n, "n": "x"} for n in range(first, first + 10)])
    table.compact(all_files=True)
    table.ingest([{"id": 3, "n": "y"}])
    return table


def folder_of(instance, table):
    return instance._context.objects.under(table.table_id)


def kinds(instance):
    (found,) = sleeper.connect(instance.url).verify().tables
    return sorted({str(each.kind) for each in found.findings})


@pytest.mark.parametrize("store", STORES)
def test_each_state_store_is_clean_and_a_missing_file_is_found(instance, store):
    """Given each state store, then verify reads it, and finds a file that is gone."""
    table = filled(instance, store)

    (found,) = instance.verify().tables
    assert found.findings == ()
    assert (found.files, found.rows, found.transaction) == (3, 21, table.refresh())

    folder_of(instance, table).delete([table.references()[0].filename])
    assert kinds(instance) == ["file-missing"]


@pytest.mark.parametrize("last", [1, 3])
def test_a_missing_item_of_a_log_in_dynamodb_is_found(instance, last):
    """Given an entry that is gone, or the one after it, then the log has a gap."""
    table = filled(instance, STORES[1])
    dynamo = boto3.client("dynamodb", region_name=REGION)
    pages = dynamo.get_paginator("list_tables").paginate()
    (name,) = (n for page in pages for n in page["TableNames"] if instance.instance_id in n)
    schema = dynamo.describe_table(TableName=name)["Table"]["KeySchema"]
    keys = [each["AttributeName"] for each in schema]
    items = [
        item for item in dynamo.scan(TableName=name)["Items"] if item[keys[1]].get("N") == str(last)
    ]
    for item in items:
        dynamo.delete_item(TableName=name, Key={key: item[key] for key in keys})

    assert items
    assert "log" in kinds(instance)
    assert table.name == "t"


def test_a_part_of_a_state_in_s3_that_is_gone_is_found(instance):
    """Given a state whose files cannot be read, then that is the finding."""
    table = filled(instance, "S3StateStore")
    folder = folder_of(instance, table)
    folder.delete([info.key for info in folder.listing("statestore/files/")])

    assert kinds(instance) == ["state"]


def test_a_moved_state_is_clean(instance):
    """Given a state that was moved to another store, then its log begins with the move."""
    table = filled(instance, "DynamoDBStateStore")
    table.migrate_state("TransactionLogStateStore")
    table.ingest([{"id": 5, "n": "z"}])

    (found,) = instance.verify().tables
    assert found.findings == ()
    assert found.entries == 2


def test_an_instance_in_aws_is_clean_and_its_unknown_folders_are_found(aws_endpoint):
    """Given buckets of an instance in AWS, then tables and folders in each of them are seen."""
    instance = sleeper.create_instance(f"aws://story-{uuid.uuid4().hex[:8]}")
    table = filled(instance, "DynamoDBStateStore")
    other = "b0000000" if table.table_id != "b0000000" else "b0000001"
    instance._context.objects.put(f"{other}/data/partition_root/left.parquet", b"left")

    summary = instance.verify()

    assert summary.clean
    assert summary.tables[0].files == 3
    assert summary.unknown_folders == (other,)


def test_a_table_that_the_index_in_aws_has_only_by_id_is_found(aws_endpoint):
    """Given the item by name that is gone, then the table index has a fault."""
    instance = sleeper.create_instance(f"aws://story-{uuid.uuid4().hex[:8]}")
    table = filled(instance, "DynamoDBStateStore")
    dynamo = boto3.client("dynamodb", region_name=REGION)
    name = f"sleeper-{instance.instance_id}-table-index-by-name"
    dynamo.delete_item(TableName=name, Key={"TableName": {"S": "t"}})

    (fault,) = instance.verify().findings

    assert fault.kind == "index"
    assert table.table_id in fault.what
