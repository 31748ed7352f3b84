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
from tests.contracts.s3_server import REGION, aws_endpoint, s3_credentials, s3_server

__all__ = ["aws_endpoint", "s3_credentials", "s3_server"]

PAGE = Path(__file__).parents[2] / "docs" / "operating" / "restoring.md"
SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])


@pytest.fixture
def client(aws_endpoint):
    """Makes clients of services as any program has them."""
    return lambda service: boto3.client(service, region_name=REGION, endpoint_url=aws_endpoint)


@pytest.fixture
def instance(aws_endpoint):
    """An instance that keeps old versions, as any in AWS does."""
    return sleeper.create_instance(f"aws://{uuid.uuid4().hex[:12]}")


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
        timeout=120,
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


def test_a_table_is_brought_back_to_a_time_before_a_mistake(instance, client):
    """Given deleted rows whose files are gone, then the script brings both back, and verify agrees."""
    table = instance.create_table("flights", SCHEMA, row_keys=["id"])
    other = instance.create_table("other", SCHEMA, row_keys=["id"])
    table.ingest(rows(0, 100))
    table.ingest(rows(100, 200))
    before, files = table.query().to_arrow(), keys_of(client, instance, table)
    log = f"sleeper-{instance.url.removeprefix('aws://')}-transaction-log"
    replaced = {"Bucket": bucket_of(client, instance), "Key": f"{table.table_id}/replaced"}
    client("s3").put_object(**replaced, Body=b"before")
    at = a_second_between()
    client("dynamodb").restore_table_to_point_in_time(
        SourceTableName=log, TargetTableName=f"{log}-restored", UseLatestRestorableTime=True
    )
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
    assert "as it was after transaction" in done.stdout
    assert client("s3").get_object(**replaced)["Body"].read() == b"before"
    with sleeper.connect(instance.url) as opened:
        restored = opened.table("flights")
        assert restored.query().to_arrow().equals(before)
        assert keys_of(client, instance, table) == files
        assert all(each.findings == () for each in opened.verify().tables)
        assert opened.table("other").count() == 7
        restored.ingest(rows(200, 201))
        assert restored.count() == 201
