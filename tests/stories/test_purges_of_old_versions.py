"""Row keys are purged from what a bucket keeps of objects that were replaced or deleted (rule DEL-4)."""

from __future__ import annotations

import uuid

import boto3
import pytest

import sleeper
from sleeper.storage.aws import old_versions
from sleeper.storage.aws.clients import aws_client
from tests.contracts.s3_server import REGION, aws_endpoint, bucket, s3_credentials, s3_server
from tests.stories.test_purges import SCHEMA, addresses, places_in, rows_of

__all__ = ["aws_endpoint", "bucket", "s3_credentials", "s3_server"]


@pytest.fixture
def s3(aws_endpoint):
    return boto3.client("s3", region_name=REGION, endpoint_url=aws_endpoint)


@pytest.fixture
def versioned(s3, bucket):
    """A bucket that keeps old versions."""
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    return bucket


def all_versions(s3, bucket):
    """The key and the bytes of each version of each object."""
    for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket):
        for each in page.get("Versions", ()):
            named = {"Bucket": bucket, "Key": each["Key"], "VersionId": each["VersionId"]}
            yield each["Key"], s3.get_object(**named)["Body"].read()


def used_table(instance, keys):
    """A table whose files with the keys were compacted and deleted."""
    table = instance.create_table("people", SCHEMA, row_keys=["email"])
    table.ingest(rows_of(keys[::2]))
    table.ingest(rows_of(keys[1::2]))
    table.compact(all_files=True)
    table.collect_garbage(force=True)
    return table


def test_are_in_no_version_of_an_object(s3, aws_endpoint):
    """Given an instance in AWS, which keeps old versions, then no bucket has a purged key."""
    instance = sleeper.create_instance(f"aws://{uuid.uuid4().hex[:12]}")
    keys = addresses(300)
    table = used_table(instance, keys)
    start = f"sleeper-{instance.url.removeprefix('aws://')}-"
    buckets = [each["Name"] for each in s3.list_buckets()["Buckets"]]
    own = [each for each in buckets if each.startswith(start)]
    before = [place for each in own for place in places_in(keys[:50], all_versions(s3, each))]

    proof = table.purge(keys=keys[:50])

    after = [place for each in own for place in places_in(keys[:50], all_versions(s3, each))]
    assert len(before) >= 3
    assert after == []
    assert proof.finished, proof.findings
    assert proof.counts["oldVersionsDeleted"] >= 4
    assert not any("not current" in each for each in proof.out_of_reach)
    assert any("history of tables in DynamoDB" in each for each in proof.out_of_reach)
    assert table.count() == len(keys) - 50
    assert table.verify().findings == ()


def test_other_objects_of_the_bucket_keep_their_versions(s3, versioned):
    """Given a folder of a bucket, then versions outside of the table are left alone."""
    instance = sleeper.connect(f"s3://{versioned}/shop", create=True)
    keys = addresses(40)
    table = used_table(instance, keys)
    for body in (b"1", b"2"):
        s3.put_object(Bucket=versioned, Key="shop-notes", Body=body)
        s3.put_object(Bucket=versioned, Key=f"other/{table.table_id}/x", Body=body)

    proof = table.purge(keys=keys[:9])

    assert proof.finished, proof.findings
    assert places_in(keys[:9], all_versions(s3, versioned)) == set()
    kept = [key for key, _ in all_versions(s3, versioned)]
    assert kept.count("shop-notes") == kept.count(f"other/{table.table_id}/x") == 2
    assert not any("DynamoDB" in each for each in proof.out_of_reach)


def test_a_version_that_is_held_is_a_finding(s3, versioned, monkeypatch):
    """Given a version that may not be deleted, then the purge is not finished, and goes on later."""
    instance = sleeper.connect(f"s3://{versioned}/shop", create=True)
    keys = addresses(40)
    table = used_table(instance, keys)
    with monkeypatch.context() as patch:
        patch.setattr(aws_client("s3", REGION, s3.meta.endpoint_url), "delete_objects", held)
        refused = table.purge(keys=keys[:9])

    again = table.purge(keys=keys[:9])

    assert not refused.finished
    assert {each.what.rpartition(": ")[2] for each in refused.findings} == {"AccessDenied held"}
    assert again.finished
    assert again.purge_id == refused.purge_id


def held(**request):
    """Delete nothing."""
    objects = request["Delete"]["Objects"]
    return {"Errors": [{**each, "Code": "AccessDenied", "Message": "held"} for each in objects]}


def test_versions_that_cannot_be_listed_are_told(s3, versioned, monkeypatch):
    """Given credentials that may not list them, then the proof says that it does not know."""
    instance = sleeper.connect(f"s3://{versioned}/shop", create=True)
    keys = addresses(40)
    table = used_table(instance, keys)
    client = aws_client("s3", REGION, s3.meta.endpoint_url)

    def denied(**_):
        answer = {"Error": {"Code": "AccessDenied", "Message": "no"}}
        raise client.exceptions.ClientError(answer, "GetBucketVersioning")

    monkeypatch.setattr(client, "get_bucket_versioning", denied)
    proof = table.purge(keys=keys[:9])

    assert proof.finished
    (told,) = {each.partition(" in s3")[0] for each in proof.out_of_reach if "not current" in each}
    assert "cannot delete old versions" in told
    assert any("s3:GetBucketVersioning" in each for each in proof.out_of_reach)


@pytest.mark.parametrize(("keeps", "wanted"), [(False, 1), (True, 3)])
def test_a_bucket_without_old_versions_is_asked_once(s3, bucket, keeps, wanted):
    """Given a bucket that never kept any, then it is one request; else three for a few versions."""
    if keeps:
        s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    for body in (b"1", b"2"):
        s3.put_object(Bucket=bucket, Key="t/x", Body=body)
    called = []
    s3.meta.events.register("before-call.s3", lambda model, **_: called.append(model.name))

    done = old_versions.delete_old_versions(s3, bucket, "t/")

    assert len(called) == wanted
    assert (done.deleted, done.size_bytes) == ((1, 1) if keeps else (0, 0))
    assert s3.get_object(Bucket=bucket, Key="t/x")["Body"].read() == b"2"
