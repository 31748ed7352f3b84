"""A new stack, without anything that it would share with others."""

from __future__ import annotations

from typing import Final

from aws_cdk import (
    App,
    Duration,
    Environment,
    LegacyStackSynthesizer,
    PermissionsBoundary,
    RemovalPolicy,
    Stack,
    Tags,
)
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs

from sleeper.deploy.settings import DeploymentSettings
from sleeper.model.jobs.messages import QueueSettings
from sleeper.storage.aws.clients import OWNER_TAG, owner_tag_value
from sleeper.storage.aws.dynamo_tables import DynamoTable, Keys
from sleeper.storage.aws.jobs.sqs_calls import RETENTION_S, SqsNames
from sleeper.storage.aws.jobs.sqs_messages import whole_seconds

_OWNED: Final = ("AWS::S3::Bucket", "AWS::DynamoDB::Table", "AWS::SQS::Queue")
"""Types of resources whose tag says that they are the instance's, as `sleeper init` tags them."""


def new_stack(app: App, settings: DeploymentSettings, kind: str, description: str) -> Stack:
    """Add an empty stack to an app.

    AWS gives the tags of a stack to all of its resources. A stack needs no bootstrap of the
    account, and cannot have assets: its images are in ECR, and its
    template is short enough to be sent as it is.

    Args:
        app: The app.
        settings: The settings of the deployment.
        kind: What it is, such as `IngestStack`.
        description: What it has, in a sentence.
    """
    names, cloud = settings.names, settings.properties.cloud
    boundary = cloud.boundary and PermissionsBoundary.from_arn(cloud.boundary)
    stack = Stack(
        app,
        kind,
        stack_name=names.stack(kind),
        description=f"Sleeper instance {names.instance_id}: {description}",
        env=Environment(account=names.account, region=names.region),
        synthesizer=LegacyStackSynthesizer(),
        permissions_boundary=boundary,
        tags={
            **settings.tags(),
            cloud.stack_tag: names.stack(kind),
            OWNER_TAG: owner_tag_value(names.url),  # by which a deployment knows its stacks
        },
    )
    Tags.of(stack).add(OWNER_TAG, owner_tag_value(names.url), include_resource_types=list(_OWNED))
    return stack


# ---------------------------------------------------------------- buckets
#
# Buckets of S3.

_UPLOAD_DAYS: Final = 7
"""How long the parts of an upload that nobody ends are kept."""


def add_bucket(stack: Stack, bucket: str, *, retain: bool, expiry_days: int | None) -> None:
    """Add a bucket: encrypted, reached over TLS only, and closed to the public.

    Args:
        stack: Where.
        bucket: Its name.
        retain: Whether it stays when the stack is deleted.
        expiry_days: How long objects are kept; None for ever.
    """
    rules = [s3.LifecycleRule(abort_incomplete_multipart_upload_after=Duration.days(_UPLOAD_DAYS))]
    if expiry_days is not None:
        rules.append(s3.LifecycleRule(expiration=Duration.days(expiry_days)))
    s3.Bucket(
        stack,
        bucket,
        bucket_name=bucket,
        encryption=s3.BucketEncryption.S3_MANAGED,
        block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
        object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
        enforce_ssl=True,
        lifecycle_rules=rules,
        removal_policy=RemovalPolicy.RETAIN if retain else RemovalPolicy.DESTROY,
    )


# ---------------------------------------------------------------- dynamo tables
#
# Tables of DynamoDB, as the code of their users declares them.

_KINDS: Final = {
    "S": dynamodb.AttributeType.STRING,
    "N": dynamodb.AttributeType.NUMBER,
    "B": dynamodb.AttributeType.BINARY,
}


def add_table(stack: Stack, name: str, table: DynamoTable, *, retain: bool, recovers: bool) -> None:
    """Add a table that is paid by the request. DynamoDB encrypts it by a key of its own.

    Args:
        stack: Where.
        name: Its full name.
        table: Its keys, indexes and expiry.
        retain: Whether it stays when the stack is deleted.
        recovers: Whether it can be restored to any second of the last 35 days.
    """
    made = dynamodb.Table(
        stack,
        name,
        table_name=name,
        **_keys(table.key),
        billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
        time_to_live_attribute=table.expiry,
        point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
            point_in_time_recovery_enabled=recovers
        ),
        removal_policy=RemovalPolicy.RETAIN if retain else RemovalPolicy.DESTROY,
    )
    for index, key in table.indexes:
        made.add_global_secondary_index(index_name=index, **_keys(key))


def _keys(key: Keys) -> dict[str, dynamodb.Attribute]:
    names = ("partition_key", "sort_key")
    return {
        name: dynamodb.Attribute(name=attribute, type=_KINDS[kind])
        for name, (attribute, kind) in zip(names, key, strict=False)
    }


# ---------------------------------------------------------------- queues
#
# Queues of SQS, each with a queue for its dead letters.


def add_queue(stack: Stack, names: SqsNames, settings: QueueSettings) -> None:
    """Add a queue and that of its dead letters.

    Both are encrypted by SQS, and take requests over TLS only.

    Args:
        stack: Where.
        names: Its name and that of the other.
        settings: How it delivers.
    """
    dead = sqs.Queue(
        stack,
        names.dead,
        queue_name=names.dead,
        fifo=settings.fifo or None,
        encryption=sqs.QueueEncryption.SQS_MANAGED,
        enforce_ssl=True,
        retention_period=Duration.seconds(RETENTION_S),
    )
    sqs.Queue(
        stack,
        names.queue,
        queue_name=names.queue,
        fifo=settings.fifo or None,
        encryption=sqs.QueueEncryption.SQS_MANAGED,
        enforce_ssl=True,
        retention_period=Duration.seconds(RETENTION_S),
        visibility_timeout=Duration.seconds(whole_seconds(settings.visibility_s)),
        dead_letter_queue=sqs.DeadLetterQueue(queue=dead, max_receive_count=settings.receives_max),
    )
