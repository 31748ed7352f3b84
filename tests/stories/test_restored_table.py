"""A table in AWS is brought back to a time before a mistake, by the script of the page about it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path

import boto3
import pyarrow as pa
import pytest

import sleeper
from sleeper.storage.aws import clients
from tests.contracts.s3_server import REGION, aws_endpoint, s3_credentials, s3_server
from tests.contracts.servers.dynamodb_local import shared_dynamodb_local
from tests.patience import PATIENCE_S

__all__ = ["aws_endpoint", "s3_credentials", "s3_server"]

PAGE = Path(__file__).parents[2] / "docs" / "operating" / "restoring.md"
SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])


@pytest.fixture(params=[None, "dynamodb-local"])
def dynamodb_local(request, aws_endpoint, tmp_path_factory, monkeypatch):
    """The URL of DynamoDB Local, where states are then; None where all is the emulator's."""
    if request.param is None:
        return None
    url = shared_dynamodb_local(request.config, tmp_path_factory)
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", url)
    monkeypatch.setattr(clients, "_clients", {})
    return url


@pytest.fixture
def client(aws_endpoint, dynamodb_local):
    """Makes clients of services as any program has them."""

    def made(service):
        url = dynamodb_local if service == "dynamodb" and dynamodb_local else aws_endpoint
        return boto3.client(service, region_name=REGION, endpoint_url=url)

    return made


@pytest.fixture(scope="module")
def made():
    """The URLs of instances, by their server of DynamoDB: to make one takes as long as a test."""
    return {}


@pytest.fixture
def instance(client, dynamodb_local, made):
    """An instance that keeps old versions, as any in AWS does; tables of other tests are in it."""
    if dynamodb_local not in made:
        made[dynamodb_local] = sleeper.create_instance(f"aws://{uuid.uuid4().hex[:12]}").url
    return sleeper.connect(made[dynamodb_local])


def rows(start, end):
    return pa.table(
        {"id": [f"{n:03}" for n in range(start, end)], "n": [*range(start, end)]}, SCHEMA
    )


def a_second_between():
    """Return a time with a second to both sides: S3 tells times to the second."""
    time.sleep(1.1)
    between = datetime.now(UTC)
    time.sleep(1.1)
    return between


def run_script(instance, table_id, at):
    """Run the page's script."""
    (script,) = re.findall(r"   ```python\n(.*?)   ```\n", PAGE.read_text(), re.DOTALL)
    words = (instance.url.removeprefix("aws://"), table_id, at.isoformat())
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *words],
        capture_output=True,
        text=True,
        env={**os.environ, "AWS_DEFAULT_REGION": REGION},
        timeout=PATIENCE_S,
        check=False,
    )


def bucket_of(client, instance):
    """The bucket of the instance's tables."""
    start = f"sleeper-{instance.url.removeprefix('aws://')}-table-data"
    named = (each["Name"] for each in client("s3").list_buckets()["Buckets"])
    return next(each for each in named if each.startswith(start))


def keys_of(client, instance, table):
    """The table's objects that are there now."""
    bucket = bucket_of(client, instance)
    prefix = f"{table.table_id}/data/"
    found = client("s3").list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", ())
    return {each["Key"] for each in found}


def restore_tables(client, instance, names, local):
    """Restore tables as Amazon does, into others; what cannot be restored is copied."""
    dynamodb = client("dynamodb")
    for each in names:
        name = f"sleeper-{instance.url.removeprefix('aws://')}-{each}"
        if local is None:
            dynamodb.restore_table_to_point_in_time(
                SourceTableName=name,
                TargetTableName=f"{name}-restored",
                UseLatestRestorableTime=True,
            )
            continue
        made = dynamodb.describe_table(TableName=name)["Table"]
        kept = {key: made[key] for key in ("AttributeDefinitions", "KeySchema")}
        dynamodb.create_table(TableName=f"{name}-restored", BillingMode="PAY_PER_REQUEST", **kept)
        for item in dynamodb.scan(TableName=name)["Items"]:
            dynamodb.put_item(TableName=f"{name}-restored", Item=item)


STATES = {
    "DynamoDBTransactionLogStateStore": ("transaction-log",),
    "S3StateStore": ("table-revisions",),
    "DynamoDBStateStore": ("active-files", "file-ref-count", "partitions", "state-commits"),
    "TransactionLogStateStore": (),
}
"""The tables of DynamoDB that a state store has, as the page says it."""
TRIED = [
    *((None, each) for each in STATES),
    ("dynamodb-local", "DynamoDBTransactionLogStateStore"),
]


def test_the_page_says_what_each_state_store_has_in_dynamodb():
    """Given the page, then its table is the one that the restoration is tried with."""
    page = PAGE.read_text()
    rows = re.findall(r"^   \| `(\w+)`[^|]*\| (.*) \|$", page, re.MULTILINE)

    assert {name: tuple(re.findall("`([a-z-]+)`", told)) for name, told in rows} == STATES


@pytest.mark.parametrize(
    ("dynamodb_local", "store"), TRIED, indirect=["dynamodb_local"], ids=lambda each: each or "all"
)
def test_a_table_is_brought_back_to_a_time_before_a_mistake(
    instance, client, dynamodb_local, store
):
    """Given deleted rows whose files are gone, then the script brings both back, and verify agrees."""
    properties = {"sleeper.table.statestore.classname": store}
    names = f"flights-{store}", f"other-{store}"
    table, other = (
        instance.create_table(name, SCHEMA, row_keys=["id"], properties=properties)
        for name in names
    )
    table.ingest(rows(0, 100))
    table.ingest(rows(100, 200))
    before, files = table.query().to_arrow(), keys_of(client, instance, table)
    replaced = {"Bucket": bucket_of(client, instance), "Key": f"{table.table_id}/replaced"}
    client("s3").put_object(**replaced, Body=b"before")
    at = a_second_between()
    restore_tables(client, instance, STATES[store], dynamodb_local)
    client("s3").put_object(**replaced, Body=b"after")
    table.delete(range={"id": ("050", "150")})
    table.compact(all_files=True)
    table.ingest(rows(300, 310))
    table.collect_garbage(force=True)
    other.ingest(rows(0, 7))
    assert table.count() == 110
    assert not files & keys_of(client, instance, table)

    done = run_script(instance, table.table_id, at)
    again = run_script(instance, table.table_id, at)

    assert done.returncode == again.returncode == 0, done.stderr + again.stderr
    assert f"table {table.table_id} is as it was" in done.stdout
    assert client("s3").get_object(**replaced)["Body"].read() == b"before"
    with sleeper.connect(instance.url) as opened:
        restored = opened.table(names[0])
        assert restored.query().to_arrow().equals(before)
        assert keys_of(client, instance, table) == files
        assert all(each.findings == () for each in opened.verify().tables)
        assert opened.table(names[1]).count() == 7
        restored.ingest(rows(200, 201))
        assert restored.count() == 201
