"""What stacks are made of: buckets, tables, queues, roles, functions, schedules."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from aws_cdk import (
    CfnStack,
    Duration,
    Environment,
    NestedStack,
    PermissionsBoundary,
    RemovalPolicy,
    Stack,
    Tags,
)
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as functions
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from sleeper.deploy.grants import Grant, use_key
from sleeper.deploy.settings import DeploymentSettings
from sleeper.deploy.stacks.failures import count_errors
from sleeper.deploy.stacks.network import function_network, use_network
from sleeper.model.jobs.messages import QueueSettings
from sleeper.model.stacks import StackName
from sleeper.storage.aws.clients import OWNER_TAG, owner_tag_value
from sleeper.storage.aws.dynamo_tables import DynamoTable, Keys
from sleeper.storage.aws.jobs.sqs_calls import RETENTION_S, SqsNames
from sleeper.storage.aws.jobs.sqs_messages import whole_seconds

AddStack = Callable[[Construct, DeploymentSettings], Stack]
"""Adds a stack to an app, or to a construct in one."""

_KEY: Final = "sleeper.kms.key.arn"
_ACCESS_LOGS: Final = "sleeper.access.logs.bucket"
"""Properties that all parts of a stack find in its context, if they are set."""

_OWNED: Final = ("AWS::S3::Bucket", "AWS::DynamoDB::Table", "AWS::SQS::Queue")
"""Types of resources whose tag says that they are the instance's, as `sleeper init` tags them."""


def new_stack(
    scope: Construct, settings: DeploymentSettings, kind: StackName, description: str
) -> Stack:
    """Add an empty stack: one of its own, or one that is nested in the stack of its scope.

    AWS gives the tags of a stack to all of its resources. A stack has no assets: its images are in
    ECR, and its template is short enough to be sent as it is.

    Args:
        scope: Where.
        settings: The settings of the deployment.
        kind: What it is.
        description: What it has, in a sentence.
    """
    names, cloud = settings.names, settings.properties.cloud
    told = f"Sleeper instance {names.instance_id}: {description}"
    tags = {
        **settings.tags(),
        cloud.stack_tag: names.stack(kind),
        OWNER_TAG: owner_tag_value(names.url),  # by which a deployment knows its stacks
    }
    if any(Stack.is_stack(each) for each in scope.node.scopes):
        stack: Stack = _nested_stack(scope, str(kind), told, tags, cloud.boundary)
    else:
        stack = Stack(
            scope,
            str(kind),
            stack_name=names.stack(kind),
            description=told,
            env=Environment(account=names.account, region=names.region),
            permissions_boundary=cloud.boundary and PermissionsBoundary.from_arn(cloud.boundary),
            tags=tags,
        )
    for name, value in ((_KEY, cloud.key_arn), (_ACCESS_LOGS, cloud.access_logs_bucket)):
        if value is not None:
            stack.node.set_context(name, value)
    Tags.of(stack).add(OWNER_TAG, owner_tag_value(names.url), include_resource_types=list(_OWNED))
    return stack


def _nested_stack(
    scope: Construct, kind: str, description: str, tags: Mapping[str, str], boundary: str | None
) -> NestedStack:
    """Add a stack that is a resource of another one, which has its tags."""
    stack = NestedStack(scope, kind, description=description)
    resource = stack.nested_stack_resource
    assert isinstance(resource, CfnStack)
    for name, value in tags.items():
        resource.tags.set_tag(name, value)
    if boundary is not None:
        policy = iam.ManagedPolicy.from_managed_policy_arn(stack, "boundary", boundary)
        iam.PermissionsBoundary.of(stack).apply(policy)
    return stack


# ---------------------------------------------------------------- keys
#
# The user's key of KMS, if there is one. What has none is encrypted by Amazon's own.


def key_arn(stack: Stack) -> str | None:
    """Return the ARN of the user's key; None without one."""
    found: str | None = stack.node.try_get_context(_KEY)
    return found


def _key(stack: Stack, name: str) -> kms.IKey | None:
    arn = key_arn(stack)
    return None if arn is None else kms.Key.from_key_arn(stack, f"{name}-key", arn)


def with_key(stack: Stack, grants: Iterable[Grant]) -> list[Grant]:
    """Return grants with the use of the user's key, where they are on what it encrypts."""
    return use_users_key(grants, key_arn(stack))


def use_users_key(grants: Iterable[Grant], arn: str | None) -> list[Grant]:
    """Return grants with the use of a key, where they are on what it encrypts; None for no key."""
    given = [*grants]
    return given if arn is None else [*given, *use_key(given, arn)]


# ---------------------------------------------------------------- buckets
#
# Buckets of S3.

_UPLOAD_DAYS: Final = 7
"""How long the parts of an upload that nobody ends are kept."""


def add_bucket(
    stack: Stack, bucket: str, *, retain: bool, expiry_days: int | None, old_days: int
) -> None:
    """Add a bucket: encrypted, reached over TLS only, and closed to the public.

    Args:
        stack: Where.
        bucket: Its name.
        retain: Whether it stays when the stack is deleted.
        expiry_days: How long objects are kept; None for ever.
        old_days: How long it keeps objects that were replaced or deleted; 0 keeps none.
    """
    rules = [s3.LifecycleRule(abort_incomplete_multipart_upload_after=Duration.days(_UPLOAD_DAYS))]
    if expiry_days is not None:
        rules.append(s3.LifecycleRule(expiration=Duration.days(expiry_days)))
    if old_days:
        rules.append(
            s3.LifecycleRule(
                noncurrent_version_expiration=Duration.days(old_days),
                expired_object_delete_marker=True,
            )
        )
    key = _key(stack, bucket)
    made = s3.Bucket(
        stack,
        bucket,
        bucket_name=bucket,
        encryption=s3.BucketEncryption.KMS if key else s3.BucketEncryption.S3_MANAGED,
        encryption_key=key,
        bucket_key_enabled=True if key else None,
        block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
        object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
        enforce_ssl=True,
        versioned=True if old_days else None,
        lifecycle_rules=rules,
        removal_policy=RemovalPolicy.RETAIN if retain else RemovalPolicy.DESTROY,
    )
    logs_bucket, resource = stack.node.try_get_context(_ACCESS_LOGS), made.node.default_child
    if logs_bucket is not None and isinstance(resource, s3.CfnBucket):
        resource.logging_configuration = s3.CfnBucket.LoggingConfigurationProperty(
            destination_bucket_name=logs_bucket, log_file_prefix=f"{bucket}/"
        )


# ---------------------------------------------------------------- dynamo tables
#
# Tables of DynamoDB, as the code of their users declares them.

_KINDS: Final = {
    "S": dynamodb.AttributeType.STRING,
    "N": dynamodb.AttributeType.NUMBER,
    "B": dynamodb.AttributeType.BINARY,
}


def add_table(
    stack: Stack, name: str, table: DynamoTable, *, retain: bool, recovers: bool, protects: bool
) -> None:
    """Add a table that is paid by the request.

    Args:
        stack: Where.
        name: Its full name.
        table: Its keys, indexes and expiry.
        retain: Whether it stays when the stack is deleted.
        recovers: Whether it can be restored to any second of the last 35 days.
        protects: Whether DynamoDB refuses to delete it, until that is switched off.
    """
    key = _key(stack, name)
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
        encryption=dynamodb.TableEncryption.CUSTOMER_MANAGED if key else None,
        encryption_key=key,
        deletion_protection=protects,
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

    Both are encrypted, and take requests over TLS only.

    Args:
        stack: Where.
        names: Its name and that of the other.
        settings: How it delivers.
    """
    key = _key(stack, names.queue)
    encryption = sqs.QueueEncryption.KMS if key else sqs.QueueEncryption.SQS_MANAGED
    dead = sqs.Queue(
        stack,
        names.dead,
        queue_name=names.dead,
        fifo=settings.fifo or None,
        encryption=encryption,
        encryption_master_key=key,
        enforce_ssl=True,
        retention_period=Duration.seconds(RETENTION_S),
    )
    sqs.Queue(
        stack,
        names.queue,
        queue_name=names.queue,
        fifo=settings.fifo or None,
        encryption=encryption,
        encryption_master_key=key,
        enforce_ssl=True,
        retention_period=Duration.seconds(RETENTION_S),
        visibility_timeout=Duration.seconds(whole_seconds(settings.visibility_s)),
        dead_letter_queue=sqs.DeadLetterQueue(queue=dead, max_receive_count=settings.receives_max),
    )


# ---------------------------------------------------------------- roles
#
# Roles and policies of IAM, made from grants.


def statement(grant: Grant) -> iam.PolicyStatement:
    """Return the statement of a policy that says what a grant says."""
    return iam.PolicyStatement(
        effect=iam.Effect.DENY if grant.denies else iam.Effect.ALLOW,
        actions=list(grant.actions),
        resources=list(grant.resources),
        conditions=None if grant.conditions is None else dict(grant.conditions),
    )


def add_role(stack: Stack, name: str, service: str, grants: Iterable[Grant]) -> iam.Role:
    """Add a role that a service of AWS takes.

    Args:
        stack: Where.
        name: Its name.
        service: The service, such as `lambda`.
        grants: What it may do.
    """
    return iam.Role(
        stack,
        f"{name}-role",
        role_name=name,
        assumed_by=iam.ServicePrincipal(f"{service}.amazonaws.com"),
        inline_policies={
            "access": iam.PolicyDocument(statements=[*map(statement, with_key(stack, grants))])
        },
    )


def add_policy(stack: Stack, name: str, description: str, grants: Iterable[Grant]) -> None:
    """Add a policy that a user can attach to roles.

    Args:
        stack: Where.
        name: Its name.
        description: Whom it is for.
        grants: What it allows.
    """
    iam.ManagedPolicy(
        stack,
        f"{name}-policy",
        managed_policy_name=name,
        description=description,
        statements=[*map(statement, with_key(stack, grants))],
    )


# ---------------------------------------------------------------- logs
#
# Groups of logs.


def add_logs(stack: Stack, settings: DeploymentSettings, what: str) -> logs.CfnLogGroup:
    """Add a group of logs; CloudFormation names it after the stack and `what`.

    It has no fixed name, so that one that stayed when its stack was deleted is not in the way.
    """
    cloud = settings.properties.cloud
    group = logs.CfnLogGroup(
        stack,
        f"{what}-logs",
        kms_key_id=key_arn(stack),
        retention_in_days=None if cloud.log_days < 0 else cloud.log_days,
    )
    group.apply_removal_policy(
        RemovalPolicy.RETAIN if cloud.retains_logs else RemovalPolicy.DESTROY
    )
    return group


def write_logs(group: logs.CfnLogGroup) -> Grant:
    """Allow to write to a group of logs."""
    return Grant(("logs:CreateLogStream", "logs:PutLogEvents"), (group.attr_arn,))


# ---------------------------------------------------------------- functions
#
# Lambda functions, which run handlers of `sleeper.interfaces.lambdas` in the worker's image.

_HANDLERS: Final = "sleeper.interfaces.lambdas.handlers"
_ENTRY_POINT: Final = ("python", "-m", "awslambdaric")


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSpec:
    """A function to add.

    Attributes:
        name: Its name, after the instance's prefix; its role has the same.
        handler: The function in `sleeper.interfaces.lambdas.handlers` that it calls.
        description: What it does.
        memory_mb: Its memory.
        timeout_s: How long one call may take.
        grants: What it may do, but for writing logs.
        environment: Variables that it reads, but for SLEEPER_INSTANCE.
        reserved: Concurrency of the account that it has for itself; None for none.
    """

    name: str
    handler: str
    description: str
    memory_mb: int
    timeout_s: int
    grants: tuple[Grant, ...]
    environment: Mapping[str, str]
    reserved: int | None = None


def add_function(
    stack: Stack, settings: DeploymentSettings, spec: FunctionSpec
) -> functions.CfnFunction:
    """Add a function with its role and logs. It costs nothing while idle."""
    name = settings.names.function(spec.name)
    logs = add_logs(stack, settings, spec.name)
    count_errors(stack, settings, spec.name, logs)
    allowed = [*spec.grants, *use_network(settings), write_logs(logs)]
    role = add_role(stack, name, "lambda", allowed)
    lambdas = settings.properties.lambdas
    is_arm = lambdas.architecture == "ARM64"
    return functions.CfnFunction(
        stack,
        spec.name,
        function_name=name,
        description=spec.description,
        package_type="Image",
        code=functions.CfnFunction.CodeProperty(image_uri=settings.function_image),
        image_config=functions.CfnFunction.ImageConfigProperty(
            entry_point=list(_ENTRY_POINT), command=[f"{_HANDLERS}.{spec.handler}"]
        ),
        architectures=["arm64" if is_arm else "x86_64"],
        memory_size=spec.memory_mb,
        timeout=spec.timeout_s,
        role=role.role_arn,
        reserved_concurrent_executions=spec.reserved if lambdas.reserves else None,
        kms_key_arn=key_arn(stack),
        environment=functions.CfnFunction.EnvironmentProperty(
            variables={"SLEEPER_INSTANCE": settings.names.url, **spec.environment}
        ),
        logging_config=functions.CfnFunction.LoggingConfigProperty(log_group=logs.ref),
        vpc_config=function_network(stack, settings),
    )


def add_queue_source(
    stack: Stack,
    function: functions.CfnFunction,
    queue_arn: str,
    *,
    batch: int = 1,
    at_once: int | None = None,
    on_demand: bool = False,
) -> functions.CfnEventSourceMapping:
    """Have a function called with the messages of a queue. It says which of them failed.

    Args:
        stack: Where.
        function: The function.
        queue_arn: The ARN of the queue, whose messages are hidden for at least as long as a call
            may take.
        batch: Messages in one call, at most.
        at_once: Calls at once, at most; None for as many as the account has.
        on_demand: Whether it is disabled until `follow_queue` enables it.
    """
    return functions.CfnEventSourceMapping(
        stack,
        f"{function.node.id}-messages",
        event_source_arn=queue_arn,
        function_name=function.ref,
        batch_size=batch,
        enabled=False if on_demand else None,
        function_response_types=["ReportBatchItemFailures"],
        scaling_config=None
        if at_once is None
        else functions.CfnEventSourceMapping.ScalingConfigProperty(maximum_concurrency=at_once),
    )


def follow_queue(
    settings: DeploymentSettings,
    source: functions.CfnEventSourceMapping,
    queue: str,
) -> tuple[tuple[Grant, ...], dict[str, str]]:
    """Return what lets a function enable a mapping while its queue has messages.

    Args:
        settings: The settings of the deployment.
        source: The mapping, in the same stack, which is `on_demand`.
        queue: The name of its queue.

    Returns:
        What the function may do, and variables that it reads.
    """
    mapping = settings.names.arn("lambda", f"event-source-mapping:{source.ref}")
    changes = ("lambda:GetEventSourceMapping", "lambda:UpdateEventSourceMapping")
    allowed = (
        Grant(("sqs:GetQueueAttributes",), (settings.names.queue_arn(queue),)),
        Grant(changes, (mapping,)),
    )
    url = settings.names.queue_url(queue)
    return allowed, {"SLEEPER_SOURCE": source.ref, "SLEEPER_SOURCE_QUEUE_URL": url}


# ---------------------------------------------------------------- schedules
#
# Schedules, which call functions every so often.


def add_schedule(
    stack: Stack,
    settings: DeploymentSettings,
    name: str,
    *,
    function: str,
    minutes: int,
    event: Mapping[str, Any],
) -> None:
    """Have a function called every so many minutes.

    Args:
        stack: Where.
        settings: The settings of the deployment.
        name: The schedule's name, after the instance's prefix.
        function: The function's name, after the instance's prefix; it may be in another stack.
        minutes: How often.
        event: What it is called with.
    """
    arn = settings.names.function_arn(function)
    rule = events.CfnRule(
        stack,
        name,
        name=settings.names.named(name),
        description=f"Calls {settings.names.function(function)}",
        schedule_expression=f"rate({minutes} minute{'' if minutes == 1 else 's'})",
        state="ENABLED",
        targets=[events.CfnRule.TargetProperty(arn=arn, id="function", input=json.dumps(event))],
    )
    permission = functions.CfnPermission(
        stack,
        f"{name}-permission",
        action="lambda:InvokeFunction",
        function_name=settings.names.function(function),
        principal="events.amazonaws.com",
        source_arn=rule.attr_arn,
    )
    here = stack.node.try_find_child(function)
    if here is not None:
        permission.node.add_dependency(here)
