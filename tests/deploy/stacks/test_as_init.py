"""What stacks make, and the properties that name it, are those of `sleeper init aws://`."""

from __future__ import annotations

import re
import uuid

import boto3
import javaproperties
import pytest

import sleeper
from sleeper.deploy.settings import DeploymentSettings
from sleeper.deploy.stacks.app import synthesise
from sleeper.model.jobs.kinds import QueueName
from sleeper.storage.aws.deployment.table_index import ALL_TABLES
from tests.contracts.s3_server import REGION, aws_endpoint, s3_credentials, s3_server
from tests.deploy.stacks.conftest import Deployed

__all__ = ["aws_endpoint", "s3_credentials", "s3_server"]


GIVEN = {
    "sleeper.optional.stacks": "QueryStack",
    "sleeper.ingest.queue.visibility.timeout.seconds": "321",
    "sleeper.jobs.receives.max": "4",
    "sleeper.query.results.bucket.expiry.days": "2",
}


@pytest.fixture
def client(aws_endpoint):
    """Makes clients of services as any program has them."""
    return lambda service: boto3.client(service, region_name=REGION, endpoint_url=aws_endpoint)


@pytest.fixture
def instance_id(aws_endpoint):
    """An instance that `sleeper init` made."""
    made = f"Init.{uuid.uuid4().hex[:8]}"
    sleeper.create_instance(f"aws://{made}", properties=GIVEN)
    return made


@pytest.fixture
def deployed(instance_id, client, tmp_path):
    """The templates of the same instance."""
    account = client("sts").get_caller_identity()["Account"]
    given = GIVEN | {"sleeper.id": instance_id}
    settings = DeploymentSettings.of(given, account=account, region=REGION)
    made = Deployed.__new__(Deployed)
    made.settings, made.made = settings, synthesise(settings, tmp_path)
    return made


def with_host_of_aws(text):
    """The URL of a queue as it would be at Amazon's."""
    return re.sub("^http://[^/]*/", f"https://sqs.{REGION}.amazonaws.com/", text)


def test_the_properties_are_the_same(deployed, client):
    """Given one instance by `sleeper init`, then stacks of its id would be named by the same."""
    bucket = deployed.settings.names.buckets.config_bucket
    body = client("s3").get_object(Bucket=bucket, Key="instance.properties")["Body"].read()
    stored = {
        name: with_host_of_aws(text) for name, text in javaproperties.loads(body.decode()).items()
    }

    named = deployed.settings.resource_properties()

    assert stored | named == stored
    ours = {"sleeper.format.version", "sleeper.default.table.statestore.classname"}
    assert stored.keys() == named.keys() | GIVEN.keys() | ours


def test_the_resources_are_the_same(deployed, client, instance_id):
    """Buckets, tables and queues have the same names, keys, times and tags."""
    prefix = deployed.settings.names.prefix
    templates = deployed.resources

    pages = client("dynamodb").get_paginator("list_tables").paginate()
    listed = [each for page in pages for each in page["TableNames"]]
    tables = {each for each in listed if each.startswith(prefix)}
    assert tables == {deployed.settings.names.table(each) for each in ALL_TABLES}
    for table in templates("AWS::DynamoDB::Table"):
        if table.name in tables:
            check_table(table.properties, client("dynamodb"), table.name)
    for bucket in templates("AWS::S3::Bucket"):
        check_versions(bucket.properties, client("s3"), bucket.name)
    buckets = {each["Name"] for each in client("s3").list_buckets()["Buckets"]}
    assert {each for each in buckets if each.startswith(prefix)} == {
        each.name for each in templates("AWS::S3::Bucket")
    }
    queues = {
        each.rpartition("/")[2]: each
        for each in client("sqs").list_queues(QueueNamePrefix=prefix)["QueueUrls"]
    }
    of_stack = templates("AWS::SQS::Queue", stack="QueuesStack")
    assert queues.keys() == {each.name for each in of_stack}
    assert len(queues) == 2 * len(QueueName)
    for queue in of_stack:
        check_queue(queue.properties, client("sqs"), queues[queue.name])


def check_table(made, dynamodb, name):
    found = dynamodb.describe_table(TableName=name)["Table"]
    assert made["KeySchema"] == found["KeySchema"]
    order = {"key": lambda each: each["AttributeName"]}
    assert sorted(made["AttributeDefinitions"], **order) == sorted(
        found["AttributeDefinitions"], **order
    )
    indexes = {
        each["IndexName"]: (each["KeySchema"], each["Projection"])
        for each in found.get("GlobalSecondaryIndexes", ())
    }
    assert indexes == {
        each["IndexName"]: (each["KeySchema"], each["Projection"])
        for each in made.get("GlobalSecondaryIndexes", ())
    }
    expiry = dynamodb.describe_time_to_live(TableName=name)["TimeToLiveDescription"]
    assert made.get("TimeToLiveSpecification", {}).get("AttributeName") == expiry.get(
        "AttributeName"
    )
    assert made["Tags"] == dynamodb.list_tags_of_resource(ResourceArn=found["TableArn"])["Tags"]

    backups = dynamodb.describe_continuous_backups(TableName=name)["ContinuousBackupsDescription"]
    status = backups["PointInTimeRecoveryDescription"]["PointInTimeRecoveryStatus"]
    recovers = made["PointInTimeRecoverySpecification"]["PointInTimeRecoveryEnabled"]
    assert status == ("ENABLED" if recovers else "DISABLED"), name
    assert made["DeletionProtectionEnabled"] is found["DeletionProtectionEnabled"], name


def check_versions(made, s3, name):
    """Old versions are kept as long, in the same buckets."""
    status = s3.get_bucket_versioning(Bucket=name).get("Status")
    assert made.get("VersioningConfiguration", {}).get("Status") == status, name
    if status is None:
        return
    rules = s3.get_bucket_lifecycle_configuration(Bucket=name)["Rules"]
    found = {
        "old": next(each for each in rules if "NoncurrentVersionExpiration" in each),
        "parts": next(each for each in rules if "AbortIncompleteMultipartUpload" in each),
    }
    wanted = made["LifecycleConfiguration"]["Rules"]
    old = next(each for each in wanted if "NoncurrentVersionExpiration" in each)
    parts = next(each for each in wanted if "AbortIncompleteMultipartUpload" in each)
    assert old["NoncurrentVersionExpiration"] == found["old"]["NoncurrentVersionExpiration"]
    assert found["old"]["Expiration"] == {"ExpiredObjectDeleteMarker": True}
    assert old["ExpiredObjectDeleteMarker"] is True
    assert (
        parts["AbortIncompleteMultipartUpload"] == found["parts"]["AbortIncompleteMultipartUpload"]
    )


def check_queue(made, sqs, url):
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert str(made["MessageRetentionPeriod"]) == found["MessageRetentionPeriod"]
    assert made.get("FifoQueue", False) is (found.get("FifoQueue") == "true")
    assert ("RedrivePolicy" in made) is ("RedrivePolicy" in found)
    if "RedrivePolicy" in made:
        assert str(made["VisibilityTimeout"]) == found["VisibilityTimeout"]
        received = str(made["RedrivePolicy"]["maxReceiveCount"])
        assert f'"maxReceiveCount": "{received}"' in found["RedrivePolicy"]
    tags = sqs.list_queue_tags(QueueUrl=url)["Tags"]
    assert {each["Key"]: each["Value"] for each in made["Tags"]} == tags
