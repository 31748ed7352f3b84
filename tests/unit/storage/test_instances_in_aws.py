"""Answers of AWS that no emulator gives: buckets of others, objects that stay, tables in use."""

from __future__ import annotations

import boto3
import pytest
from botocore.stub import Stubber

from sleeper.errors import AlreadyExists, StorageFailed
from sleeper.storage.aws.deployment import belongings
from sleeper.storage.aws.deployment.belongings import AwsBelongings
from sleeper.storage.aws.deployment.buckets import InstanceBuckets

BUCKET = "sleeper-demo-config-123456789012"
KEYS = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "eu-west-2"}
TABLE = {"Table": {"TableArn": "arn:aws:dynamodb:::table/sleeper-demo-t", "ItemCount": 3}}


@pytest.fixture
def s3():
    with Stubber(boto3.client("s3", **KEYS)) as stubbed:
        yield stubbed


@pytest.fixture
def dynamo(monkeypatch):
    with Stubber(boto3.client("dynamodb", **KEYS)) as stubbed:
        monkeypatch.setattr(belongings, "aws_client", lambda *_: stubbed.client)
        yield stubbed


def buckets(s3):
    return InstanceBuckets(s3.client, "aws://demo")


def tables(pauses=None):
    found = [] if pauses is None else pauses
    return AwsBelongings("demo", "aws://demo", region=None, pause=found.append)


def test_a_bucket_that_denies_a_look_is_that_of_others(s3):
    """Given 403 for the tags, then the message says whose it may be, and what to do."""
    s3.add_client_error("get_bucket_tagging", "AccessDenied", http_status_code=403)

    with pytest.raises(AlreadyExists, match=f"{BUCKET}.*somebody else.*another id"):
        buckets(s3).check(BUCKET)


def test_a_name_that_somebody_else_took_meanwhile_is_refused(s3):
    """Given BucketAlreadyExists, then it is not taken for ours."""
    s3.add_client_error("get_bucket_tagging", "NoSuchBucket")
    s3.add_client_error("create_bucket", "BucketAlreadyExists", http_status_code=409)

    with pytest.raises(AlreadyExists, match=f"{BUCKET}.*somebody else"):
        buckets(s3).make(BUCKET)


def test_a_bucket_that_another_process_of_ours_makes_is_used(s3):
    """Given two that make one instance, then the second tags it too; the region is told."""
    s3.add_client_error("get_bucket_tagging", "NoSuchBucket")
    s3.add_client_error(
        "create_bucket",
        "BucketAlreadyOwnedByYou",
        expected_params={
            "Bucket": BUCKET,
            "CreateBucketConfiguration": {"LocationConstraint": "eu-west-2"},
        },
    )
    s3.add_response("put_bucket_tagging", {})

    buckets(s3).make(BUCKET)

    s3.assert_no_pending_responses()


def test_objects_that_cannot_be_deleted_are_told(s3):
    """Given an object that is held, then the error names it; so does a bucket with versions."""
    s3.add_response("list_object_versions", {"Versions": [{"Key": "held", "VersionId": "v"}]})
    s3.add_response("delete_objects", {"Errors": [{"Key": "held", "Code": "AccessDenied"}]})
    s3.add_client_error("delete_bucket", "BucketNotEmpty")

    with pytest.raises(StorageFailed, match=r"1 objects.*held \(AccessDenied\)"):
        buckets(s3).empty(BUCKET)
    with pytest.raises(StorageFailed, match="old versions"):
        buckets(s3).delete(BUCKET)


def test_every_version_and_mark_is_deleted_and_the_last_object_after_all(s3):
    """Given versions and marks on two pages, then those of the last object are deleted at last."""
    marks = [{"Key": "gone", "VersionId": "m"}]
    held = [{"Key": "held", "VersionId": each} for each in ("2", "1")]
    last = [{"Key": "last", "VersionId": each} for each in ("9", "8")]
    s3.add_response(
        "list_object_versions",
        {
            "Versions": [*held, last[0]],
            "DeleteMarkers": marks,
            "IsTruncated": True,
            "NextKeyMarker": "last",
            "NextVersionIdMarker": "9",
        },
    )
    for objects in ([*held, *marks], last):
        s3.add_response(
            "delete_objects",
            {},
            {"Bucket": BUCKET, "Delete": {"Objects": objects, "Quiet": True}},
        )
        if objects is not last:
            s3.add_response("list_object_versions", {"Versions": [last[1]]})

    buckets(s3).empty(BUCKET, last="last")

    s3.assert_no_pending_responses()


def test_a_server_without_versions_is_emptied_of_objects(s3):
    """Given a server that does not know versions, then objects are listed and deleted by keys."""
    s3.add_client_error("list_object_versions", "NotImplemented")
    s3.add_response("list_objects_v2", {"Contents": [{"Key": "a"}]})
    s3.add_response("delete_objects", {}, None)

    buckets(s3).empty(BUCKET)

    s3.assert_no_pending_responses()


def test_old_versions_that_may_not_be_kept_are_an_error(s3):
    """Given credentials that may not set it, then the message names the permission."""
    s3.add_response("get_bucket_versioning", {})
    s3.add_client_error("put_bucket_lifecycle_configuration", "AccessDenied")

    with pytest.raises(StorageFailed, match=r"s3:.*PutBucketVersioning"):
        buckets(s3).keep_old_versions(BUCKET, 7)


def test_a_protected_table_is_deleted_once_its_protection_is_off(dynamo):
    """Given a table that is busy with that change, then it is waited for; one call switches it."""
    pauses = []
    protected = {"Table": {**TABLE["Table"], "DeletionProtectionEnabled": True}}
    dynamo.add_response("list_tables", {"TableNames": ["sleeper-demo-t"]})
    dynamo.add_response("describe_table", protected)
    dynamo.add_client_error("list_tags_of_resource", "UnknownOperationException")
    dynamo.add_response(
        "update_table", {}, {"TableName": "sleeper-demo-t", "DeletionProtectionEnabled": False}
    )
    dynamo.add_client_error("delete_table", "ResourceInUseException")
    dynamo.add_response("delete_table", {})

    [found] = tables(pauses).tables()
    found.remove()

    assert pauses == [0]
    dynamo.assert_no_pending_responses()


def test_a_table_that_is_being_made_is_deleted_later(dynamo):
    """Given a table in use, then it is waited for; a server without tags knows it by its name."""
    pauses = []
    dynamo.add_response("list_tables", {"TableNames": ["other", "sleeper-demo-t"]})
    dynamo.add_response("describe_table", TABLE)
    dynamo.add_client_error("list_tags_of_resource", "UnknownOperationException")
    dynamo.add_client_error("delete_table", "ResourceInUseException")
    dynamo.add_response("delete_table", {})

    [found] = tables(pauses).tables()
    found.remove()

    assert (found.name, found.count) == ("sleeper-demo-t", 3)
    assert pauses == [0]


def test_a_table_without_a_tag_is_left_alone(dynamo, caplog):
    """Given a table that has the name but no tag, then the log says that it stays."""
    dynamo.add_response("list_tables", {"TableNames": ["sleeper-demo-t"]})
    dynamo.add_response("describe_table", TABLE)
    dynamo.add_response("list_tags_of_resource", {"Tags": []})

    assert tables().tables() == []
    assert "sleeper-demo-t is left alone" in caplog.text


def test_a_listing_that_is_denied_names_the_permission(dynamo):
    """Given credentials that may not list, then the message names what they need."""
    dynamo.add_client_error("list_tables", "AccessDeniedException")

    with pytest.raises(StorageFailed, match="dynamodb:ListTables"):
        tables().tables()
