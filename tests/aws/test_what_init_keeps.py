"""What `sleeper init aws://` keeps of what is replaced or deleted, and that all of it is removed."""

from __future__ import annotations

import logging
import os
import uuid

import boto3
import pytest

import sleeper
from sleeper.errors import PropertiesInvalid
from sleeper.instance.instance import removal_of
from tests.contracts.s3_server import REGION
from tests.contracts.servers.aws_sets import aws_set

__all__ = ["aws_set"]

KEEPS_VERSIONS = ("ministack",)
KEEPS_HISTORY = ("ministack",)


def client(service):
    """A client of a service, which is where the environment says."""
    names = (f"AWS_ENDPOINT_URL_{service.upper()}", "AWS_ENDPOINT_URL")
    endpoint = next(os.environ[name] for name in names if name in os.environ)
    return boto3.client(service, region_name=REGION, endpoint_url=endpoint)


@pytest.fixture
def url():
    return f"aws://{uuid.uuid4().hex[:12]}"


def resources_of(url):
    """Buckets and tables with the instance's name."""
    prefix = f"sleeper-{url.removeprefix('aws://')}-"
    buckets = [each["Name"] for each in client("s3").list_buckets()["Buckets"]]
    pages = client("dynamodb").get_paginator("list_tables").paginate()
    tables = [each for page in pages for each in page["TableNames"]]
    return [each for each in (*buckets, *tables) if each.startswith(prefix)]


def test_a_server_that_keeps_nothing_is_told_and_used(aws_set, url, caplog):
    """Given servers without old versions or history, then init says so, and works."""
    with caplog.at_level(logging.WARNING):
        instance = sleeper.create_instance(url)

    assert ("keeps nothing that is replaced" in caplog.text) is (aws_set not in KEEPS_VERSIONS)
    assert ("cannot be restored to a time" in caplog.text) is (aws_set not in KEEPS_HISTORY)
    table = instance.create_table("t", [{"id": "a"}], row_keys=["id"])
    table.ingest([{"id": "a"}])
    assert table.count() == 1


def test_an_instance_with_old_versions_is_removed_as_a_whole(aws_set, url):
    """Given objects that were replaced and deleted, and protected tables, then nothing is left."""
    instance = sleeper.create_instance(url)
    instance.set_properties({"sleeper.tags": "a,b"})
    for name in ("one", "two"):
        instance.create_table(name, [{"id": "a"}], row_keys=["id"]).ingest([{"id": "a"}])
    instance.delete_table("one")
    assert len(resources_of(url)) > 20

    removal_of(url).carry_out()

    assert resources_of(url) == []


def test_what_properties_leave_out_is_not_kept(aws_set, url):
    """Given properties that want neither versions, history nor protection, then there is none."""
    off = (
        "sleeper.statestore.dynamo.pointintimerecovery",
        "sleeper.statestore.s3.dynamo.pointintimerecovery",
        "sleeper.tables.index.dynamo.pointintimerecovery",
        "sleeper.deploy.deletion.protection",
    )
    sleeper.create_instance(
        url, properties={**dict.fromkeys(off, "false"), "sleeper.deploy.old.versions.days": "0"}
    )

    config = next(each for each in resources_of(url) if "-config-" in each)
    assert "Status" not in client("s3").get_bucket_versioning(Bucket=config)
    log = f"sleeper-{url.removeprefix('aws://')}-transaction-log"
    client("dynamodb").delete_table(TableName=log)


@pytest.mark.usefixtures("aws_set")
def test_init_refuses_what_stacks_alone_obey(url):
    """Given a key of the user's, then nothing is made that would not be encrypted by it."""
    key = "arn:aws:kms:us-east-1:123456789012:key/abc"

    with pytest.raises(PropertiesInvalid, match="sleeper deploy aws"):
        sleeper.create_instance(url, properties={"sleeper.kms.key.arn": key})

    assert resources_of(url) == []
