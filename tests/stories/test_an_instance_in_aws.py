"""An instance in AWS: `aws://ID`, with its buckets, tables and queues, where upstream has them."""

from __future__ import annotations

import json
import pickle
import uuid
from contextlib import contextmanager, nullcontext

import boto3
import javaproperties
import pyarrow as pa
import pytest
from botocore.client import BaseClient

import sleeper
from sleeper.errors import (
    AlreadyExists,
    BadRequest,
    DataDamaged,
    InstanceAlreadyExists,
    InstanceNotFound,
    ObjectNotFound,
    PropertiesInvalid,
    StorageFailed,
    UrlInvalid,
)
from sleeper.instance.instance import removal_of
from sleeper.storage.aws import clients
from sleeper.storage.aws.deployment.buckets import InstanceBuckets
from tests.contracts.s3_server import REGION, aws_endpoint, free_port, s3_credentials, s3_server
from tests.stories.test_ingest_jobs import SCHEMA, work, written
from tests.unit.interfaces.command_line import sleeper as command

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


def group(url):
    return {"MessageGroupId": "g", "MessageDeduplicationId": "d"} if url.endswith(".fifo") else {}


def properties_in(client, bucket, key="instance.properties"):
    body = client("s3").get_object(Bucket=bucket, Key=key)["Body"].read().decode()
    return javaproperties.loads(body)


def test_another_program_finds_it_by_its_id(instance, instance_id, cleaned, client):
    """Given plain boto3, then properties are where upstream's clients look (INS-2)."""
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
        client("sqs").send_message(QueueUrl=found[name], MessageBody="{}", **group(found[name]))
    tracker = client("dynamodb").describe_table(TableName=found["sleeper.query.tracker.table.name"])
    assert [key["AttributeName"] for key in tracker["Table"]["KeySchema"]] == [
        "queryId",
        "subQueryId",
    ]
    [record] = instance.tables()
    of_table = f"tables/table-{record.table_id}.properties"
    found = properties_in(client, found["sleeper.config.bucket"], of_table)
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


def test_rows_are_read_by_key_and_by_range_and_files_are_merged(instance):
    """Given two ingests, when they are compacted, then rows are the same, in other processes too."""
    table = instance.table("numbers")
    table.ingest(pa.table({"id": ["b", "d"], "n": [2, 4]}, schema=SCHEMA))
    table.ingest(pa.table({"id": ["a", "c"], "n": [1, 3]}, schema=SCHEMA))

    table.compact(all_files=True)

    assert table.query(key="c").to_pylist() == [{"id": "c", "n": 3}]
    found = table.query(range={"id": ("b", "d")}).to_pylist()
    assert [row["n"] for row in found] == [2, 3]
    assert table.report_files().references == 1
    assert table.properties.state_store == "DynamoDBTransactionLogStateStore"
    opened, copy = pickle.loads(pickle.dumps((instance, table)))
    assert opened.url == instance.url
    assert copy.query(key="a").to_pylist() == [{"id": "a", "n": 1}]


def test_a_copy_is_an_instance_of_its_own(instance, tmp_path):
    """Given a backup in a folder, then it has the rows, and names nothing in AWS."""
    instance.table("numbers").ingest(pa.table({"id": ["a"], "n": [1]}, schema=SCHEMA))

    instance.backup(tmp_path / "copy")

    with sleeper.connect(tmp_path / "copy") as copy:
        assert copy.table("numbers").query(key="a").to_pylist() == [{"id": "a", "n": 1}]
        assert copy.jobs.queue_depths() is not None
        copy.create_table("more", SCHEMA, row_keys=["id"])
    assert [record.name for record in instance.tables()] == ["numbers"]
    text = (tmp_path / "copy" / "instance.properties").read_text()
    assert "statestore" not in text
    assert "bucket=" not in text
    assert "queue.url" not in text
    with pytest.raises(UrlInvalid, match="cannot copy to aws://"):
        copy.backup("aws://copy")


def test_properties_are_changed_by_commands(instance, url, cleaned, client):
    """Given a change, then other programs read it; what names resources is fixed."""
    changed = command("instance", "set", "sleeper.gc.batch.size=5", "--instance", url)
    refused = command("instance", "set", "sleeper.data.bucket=other", "--instance", url)

    assert changed.exit_code == 0, changed.output
    assert refused.exit_code == 1
    assert "sleeper.data.bucket" in refused.output
    found = properties_in(client, f"sleeper-{cleaned}-config-{ACCOUNT}")
    assert found["sleeper.gc.batch.size"] == "5"


def test_an_instance_is_made_by_a_command_and_removed_by_one(url, cleaned, client, aws_endpoint):
    """Given init, a table and rows, when it is destroyed, then nothing of it is left."""
    made = command("init", url, "--set", "sleeper.gc.batch.size=7")
    assert made.exit_code == 0, made.output
    table = sleeper.connect(url).create_table("numbers", SCHEMA, row_keys=["id"])
    table.ingest(pa.table({"id": ["a"], "n": [1]}, schema=SCHEMA))
    client("s3").put_object(
        Bucket=f"sleeper-{cleaned}-table-data-{ACCOUNT}", Key="for_ingest/x.parquet", Body=b"x"
    )

    shown = command("destroy", url, answer="no\n")
    assert shown.exit_code == 1
    assert sleeper.connect(url).table("numbers").query(key="a").to_pylist() != []
    gone = command("destroy", url, "--yes")

    assert gone.exit_code == 0, gone.output
    for name in ("numbers", f"sleeper-{cleaned}-config-{ACCOUNT}", f"sleeper-{cleaned}-QueryQueue"):
        assert name in shown.output
        assert name in gone.output
    assert names_left(client, cleaned) == []
    with pytest.raises(InstanceNotFound, match="sleeper init"):
        sleeper.connect(url)
    again = command("destroy", url, "--yes")
    assert again.exit_code == 1
    assert "nothing is to be removed" in again.output


def names_left(client, cleaned):
    """The names of an instance's resources that are there."""
    buckets = [each["Name"] for each in client("s3").list_buckets()["Buckets"]]
    queues = client("sqs").list_queues(QueueNamePrefix=f"sleeper-{cleaned}-").get("QueueUrls", [])
    tables = [
        name
        for page in client("dynamodb").get_paginator("list_tables").paginate()
        for name in page["TableNames"]
    ]
    return [name for name in (*buckets, *queues, *tables) if f"sleeper-{cleaned}-" in name]


@pytest.mark.parametrize("call", ["make", "destroy"])
def test_what_is_interrupted_is_done_by_doing_it_again(url, cleaned, client, call, monkeypatch):
    """Given a kill after each of many requests, when it is done again, then it is whole."""
    if call == "destroy":
        sleeper.create_instance(url)

    def act():
        return sleeper.create_instance(url) if call == "make" else removal_of(url).carry_out()

    killed = 0
    for after in range(3, 400, 37):
        with killed_after(after, monkeypatch):
            try:
                act()
            except Killed:
                killed += 1
            except InstanceAlreadyExists:
                break
            else:
                break
        with pytest.raises(InstanceNotFound) if call == "make" else nullcontext():
            sleeper.connect(url) if call == "make" else None

    assert killed > 2
    if call == "make":
        with sleeper.connect(url) as opened:
            assert opened.tables() == ()
    else:
        assert names_left(client, cleaned) == []


class Killed(BaseException):
    """The process is dead."""


@contextmanager
def killed_after(calls, monkeypatch):
    """Let a process die at a request of boto3 after so many."""
    left = [calls]
    call = BaseClient._make_api_call

    def counted(self, operation, parameters):
        left[0] -= 1
        if left[0] < 0:
            raise Killed
        return call(self, operation, parameters)

    with monkeypatch.context() as patched:
        patched.setattr(BaseClient, "_make_api_call", counted)
        yield


def test_a_second_instance_of_an_id_is_refused(instance, url, cleaned):
    """Given an instance, then it is not made again, nor one whose names would be the same."""
    with pytest.raises(InstanceAlreadyExists):
        sleeper.create_instance(url)
    with pytest.raises(PropertiesInvalid, match="another instance"):
        sleeper.create_instance(f"aws://{cleaned}")
    with pytest.raises(PropertiesInvalid, match="another instance"):
        sleeper.connect(f"aws://{cleaned}")
    with pytest.raises(BadRequest, match=f"is that of instance '{instance.instance_id}'"):
        removal_of(f"aws://{cleaned}")
    with pytest.raises(UrlInvalid, match=f"open aws://{instance.instance_id}"):
        sleeper.connect(f"s3://sleeper-{cleaned}-config-{ACCOUNT}")


def test_an_id_that_a_bucket_instance_has_is_refused(aws_endpoint, s3_server, cleaned, client):
    """Given queues of another instance with the id, then nothing else is made."""
    bucket = s3_server.new_bucket()
    jobs = {"sleeper.id": cleaned, "sleeper.jobs.url": "sqs"}
    sleeper.create_instance(f"s3://{bucket}/demo", jobs).jobs.send("ingest", "{}")
    before = names_left(client, cleaned)

    with pytest.raises(PropertiesInvalid, match=f"s3://{bucket}/demo.*same sleeper.id"):
        sleeper.create_instance(f"aws://{cleaned}")

    assert names_left(client, cleaned) == before


def test_an_id_that_is_too_long_is_refused(aws_endpoint):
    """Rule INS-1: 20 characters; and characters that names of buckets have."""
    with pytest.raises(UrlInvalid, match="at most 20"):
        sleeper.create_instance(f"aws://{'a' * 21}")
    with pytest.raises(UrlInvalid, match="at most 20"):
        sleeper.connect("aws://under_score")


def test_names_of_resources_cannot_be_chosen(url):
    """They follow from the id: another bucket or id is refused before anything is made."""
    with pytest.raises(PropertiesInvalid, match=r"sleeper\.data\.bucket cannot be set"):
        sleeper.create_instance(url, {"sleeper.data.bucket": "mine"})
    with pytest.raises(PropertiesInvalid, match=r"sleeper\.id cannot be set"):
        sleeper.create_instance(url, {"sleeper.id": "other"})
    with pytest.raises(InstanceNotFound):
        sleeper.connect(url)


def test_a_bucket_of_others_is_left_alone(url, cleaned, client):
    """Given a bucket with objects and no tag, then neither init nor destroy touches it."""
    bucket = f"sleeper-{cleaned}-table-data-{ACCOUNT}"
    client("s3").create_bucket(Bucket=bucket)
    client("s3").put_object(Bucket=bucket, Key="precious", Body=b"x")

    with pytest.raises(AlreadyExists, match=f"{bucket}.*has objects"):
        sleeper.create_instance(url)
    with pytest.raises(BadRequest, match=f"{bucket}.*no tag"):
        removal_of(url)

    assert client("s3").get_object(Bucket=bucket, Key="precious")["Body"].read() == b"x"


def test_properties_edited_into_nonsense_are_told(instance, url, cleaned, client):
    """Given another bucket in the file, then the error names file, property and what to do."""
    config = f"sleeper-{cleaned}-config-{ACCOUNT}"
    found = properties_in(client, config)
    edited = javaproperties.dumps({**found, "sleeper.data.bucket": "somewhere"})
    client("s3").put_object(Bucket=config, Key="instance.properties", Body=edited.encode())

    with pytest.raises(PropertiesInvalid, match=r"sleeper\.data\.bucket is 'somewhere'") as told:
        sleeper.connect(url)

    assert f"s3://{config}/instance.properties" in str(told.value)
    assert "Correct the line" in str(told.value)

    client("s3").put_object(Bucket=config, Key="instance.properties", Body=b"\xff\xfe")
    with pytest.raises(DataDamaged, match=r"instance\.properties.*not UTF-8"):
        sleeper.connect(url)


def test_a_schema_edited_in_the_file_of_a_table_is_refused_before_rows_go(
    instance, cleaned, client
):
    """
    Given rows, and another schema in the table's file in the config bucket, as upstream's document
    tells it, when the table is reinitialised, then it is refused, and no row is gone. Given the
    file as it was, or deleted, then the rows go.
    """
    config = f"sleeper-{cleaned}-config-{ACCOUNT}"
    table = instance.table("numbers")
    key = f"tables/table-{table.table_id}.properties"
    bucket = client("s3")
    written = bucket.get_object(Bucket=config, Key=key)["Body"].read()
    other = {"rowKeyFields": [{"name": "id", "type": "StringType"}], "valueFields": []}
    edited = {**javaproperties.loads(written.decode()), "sleeper.table.schema": json.dumps(other)}

    for text in (javaproperties.dumps(edited), "sleeper.table.schema=nonsense"):
        bucket.put_object(Bucket=config, Key=key, Body=text.encode())
        table.ingest([{"id": "a", "n": 1}])
        rows = table.count()
        with pytest.raises(PropertiesInvalid, match="no row was removed") as refused:
            table.reinitialise()
        assert key in str(refused.value)
        assert table.count() == rows

    bucket.delete_object(Bucket=config, Key=key)
    table.reinitialise()
    assert table.count() == 0
    table.ingest([{"id": "a", "n": 1}])
    bucket.put_object(Bucket=config, Key=key, Body=written)
    table.reinitialise()
    assert table.count() == 0


def test_missing_parts_are_told(instance, url, cleaned, client):
    """Given a bucket or a table that somebody deleted, then the error names it."""
    bucket = f"sleeper-{cleaned}-table-data-{ACCOUNT}"
    InstanceBuckets(client("s3"), url).empty(bucket)
    client("s3").delete_bucket(Bucket=bucket)
    with pytest.raises(StorageFailed, match=f"{bucket}.*does not exist"):
        sleeper.connect(url).create_table("other", SCHEMA, row_keys=["id"])

    index = f"sleeper-{cleaned}-table-index-by-name"
    client("dynamodb").update_table(TableName=index, DeletionProtectionEnabled=False)
    client("dynamodb").delete_table(TableName=index)
    with pytest.raises(ObjectNotFound, match=r"table-index-by-name.*made with the instance"):
        instance.table("numbers")


def test_an_endpoint_that_is_down_is_told(url, monkeypatch):
    """The message says what was asked, and to check the endpoint. No credentials, the same."""
    monkeypatch.setattr(clients, "_clients", {})
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    with pytest.raises(StorageFailed, match=r"AWS account.*AWS_ENDPOINT_URL"):
        sleeper.connect(url)

    monkeypatch.setattr(clients, "_clients", {})
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    with pytest.raises(StorageFailed, match="no valid credentials"):
        sleeper.connect(url)
