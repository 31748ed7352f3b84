"""An instance in AWS: `aws://ID`, with its buckets, tables and queues, where upstream has them."""

from __future__ import annotations

import json
import uuid

import boto3
import javaproperties
import pytest

import sleeper
from tests.contracts.s3_server import REGION, aws_endpoint, s3_credentials, s3_server
from tests.stories.test_ingest_jobs import SCHEMA, work, written

__all__ = ["aws_endpoint", "s3_credentials", "s3_server"]

ACCOUNT = "000000000000"


@pytest.fixture
def instance_id():
    return f"Story.{uuid.uuid4().hex[:8]}"


@pytest.fixture
def cleaned(instance_id):
    """The id as it is in names of resources."""
    return instance_id.lower().replace(".", "-")


@pytest.fixture
def url(aws_endpoint, instance_id):
    return f"aws://{instance_id}"


@pytest.fixture
def instance(url):
    """An instance with a table."""
    opened = sleeper.create_instance(url)
    opened.create_table("numbers", SCHEMA, row_keys=["id"])
    return opened


@pytest.fixture
def client(aws_endpoint):
    """Makes clients of services as any program has them."""
    return lambda service: boto3.client(service, region_name=REGION, endpoint_url=aws_endpoint)


def properties_in(client, bucket, key="instance.properties"):
    body = client("s3").get_object(Bucket=bucket, Key=key)["Body"].read().decode()
    return javaproperties.loads(body)


def test_another_program_finds_it_by_its_id(instance, instance_id, cleaned, client):
    """Given plain boto3, then properties are where upstream's clients look, and so are queues."""
    account = client("sts").get_caller_identity()["Account"]

    found = properties_in(client, f"sleeper-{cleaned}-config-{account}")

    assert found["sleeper.id"] == instance_id
    assert found["sleeper.account"] == account
    assert found["sleeper.region"] == REGION
    for name in ("sleeper.config.bucket", "sleeper.data.bucket", "sleeper.query.results.bucket"):
        client("s3").head_bucket(Bucket=found[name])
    queues = [name for name in found if name.endswith("queue.url")]
    assert len(queues) == 9
    for name in queues:
        client("sqs").send_message(QueueUrl=found[name], MessageBody="{}", **_group(found[name]))
    tracker = client("dynamodb").describe_table(TableName=found["sleeper.query.tracker.table.name"])
    assert [key["AttributeName"] for key in tracker["Table"]["KeySchema"]] == [
        "queryId",
        "subQueryId",
    ]


def _group(url):
    return {"MessageGroupId": "g", "MessageDeduplicationId": "d"} if url.endswith(".fifo") else {}


def test_a_tables_properties_lie_beside(instance, cleaned, client):
    """Given a table, then its properties are in the config bucket, with its schema."""
    [record] = instance.tables()
    config = f"sleeper-{cleaned}-config-{ACCOUNT}"

    found = properties_in(client, config, f"tables/table-{record.table_id}.properties")

    assert found["sleeper.table.name"] == "numbers"
    assert found["sleeper.table.id"] == record.table_id
    schema = json.loads(found["sleeper.table.schema"])
    assert [field["name"] for field in schema["rowKeyFields"]] == ["id"]


def test_rows_go_in_by_a_queue_and_come_out(instance, cleaned, client, tmp_path):
    """Given a message of another program, when a worker runs, then its rows are found."""
    found = properties_in(client, f"sleeper-{cleaned}-config-{ACCOUNT}")
    files = [str(written(tmp_path / "one.parquet", 1, 2))]
    body = {"id": "job", "tableName": "numbers", "files": files}
    client("sqs").send_message(
        QueueUrl=found["sleeper.ingest.job.queue.url"], MessageBody=json.dumps(body)
    )

    assert work(instance) == 1

    assert instance.table("numbers").query(key="0002").to_pylist() == [{"id": "0002", "n": 2}]
    listed = client("s3").list_objects_v2(Bucket=found["sleeper.data.bucket"])["Contents"]
    [record] = instance.tables()
    assert all(each["Key"].startswith((record.table_id, "storage.time")) for each in listed)
