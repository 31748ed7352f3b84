"""The stacks of what `sleeper init aws://` makes: buckets, tables in DynamoDB, and queues."""

from __future__ import annotations

from aws_cdk import App, Stack

from sleeper.deploy import grants
from sleeper.deploy.settings import DeploymentSettings
from sleeper.deploy.stacks.functions import FunctionSpec, add_function, add_policy, add_queue_source
from sleeper.deploy.stacks.resources import add_bucket, add_queue, add_table, new_stack
from sleeper.model.jobs.events import JobKind
from sleeper.model.jobs.messages import BULK_IMPORT_QUEUES, QueueName
from sleeper.storage.aws.deployment.table_index import (
    ALL_TABLES,
    INDEX_TABLES,
    REVISION_TABLES,
    STATE_TABLES,
)
from sleeper.storage.aws.dynamo_tables import DynamoTable


def add_instance_stack(app: App, settings: DeploymentSettings) -> Stack:
    """Add the stack of buckets and tables."""
    stack = new_stack(app, settings, "InstanceStack", "buckets, and tables in DynamoDB")
    retain, names = settings.properties.cloud.retains_data, settings.names
    for bucket in names.buckets.buckets:
        add_bucket(stack, bucket, retain=retain, expiry_days=_expiry_days(settings, bucket))
    for table in ALL_TABLES:
        recovers = _recovers(settings, table)
        add_table(stack, names.table(table), table, retain=retain, recovers=recovers)
    return stack


def add_queues_stack(app: App, settings: DeploymentSettings) -> Stack:
    """Add the stack of queues."""
    stack = new_stack(app, settings, "QueuesStack", "queues of jobs, and of dead letters")
    names = settings.names
    for queue in QueueName:
        add_queue(stack, names.queues(queue), settings.queue(queue))
    return stack


def _expiry_days(settings: DeploymentSettings, bucket: str) -> int | None:
    buckets, properties = settings.names.buckets, settings.properties
    if bucket == buckets.query_results_bucket:
        return properties.query_queue.results_days
    return properties.export_queue.results_days if bucket == buckets.bulk_export_bucket else None


def _recovers(settings: DeploymentSettings, table: DynamoTable) -> bool:
    cloud = settings.properties.cloud
    if table in INDEX_TABLES:
        return cloud.recovers_index
    if table in REVISION_TABLES:
        return cloud.recovers_states or cloud.recovers_revisions
    return table in STATE_TABLES and cloud.recovers_states


# ---------------------------------------------------------------- committer stack
#
# The stack of the committer, which commits to tables what others ask it to.


def add_committer_stack(app: App, settings: DeploymentSettings) -> Stack:
    """Add StateStoreCommitterStack. Requests of one table are committed in order."""
    stack = new_stack(app, settings, "StateStoreCommitterStack", "commits what workers ask it to")
    names, lambdas = settings.names, settings.properties.lambdas
    reserved, at_once = settings.at_once(lambdas.committer_reserved, lambdas.committer_max)
    committer = FunctionSpec(
        name="committer",
        handler="commit",
        description="Commits requests of the queue to tables",
        memory_mb=settings.memory_mb(lambdas.committer_memory_mb),
        timeout_s=settings.timeout_s(lambdas.committer_timeout_s, QueueName.COMMIT),
        grants=(
            *grants.write_tables(names),
            *grants.track(names, JobKind.INGEST, JobKind.COMPACTION),
            *grants.consume(names, QueueName.COMMIT),
        ),
        environment={},
        reserved=reserved,
    )
    function = add_function(stack, settings, committer)
    add_queue_source(
        stack,
        function,
        names.queue_arn(names.queue(QueueName.COMMIT)),
        batch=settings.properties.committer.batch_size,
        at_once=at_once,
    )
    return stack


# ---------------------------------------------------------------- policies
#
# The stack of policies that a user can attach to roles of people and programs.


def add_policies_stack(app: App, settings: DeploymentSettings) -> Stack:
    """Add the stack of policies."""
    stack = new_stack(app, settings, "PoliciesStack", "policies for users of the instance")
    names, buckets = settings.names, settings.names.buckets
    ingest = (QueueName.INGEST, *BULK_IMPORT_QUEUES, QueueName.BATCHER)
    add_policy(
        stack,
        names.named("ingest-by-queue"),
        "Submits ingest jobs, bulk imports and files of the batcher, and sees what becomes of them",
        (
            *grants.read_states(names),
            *grants.read_sources(names, settings.properties.cloud.source_buckets or ()),
            *grants.send(names, *ingest),
            *grants.track(names, JobKind.INGEST),
        ),
    )
    add_policy(
        stack,
        names.named("ingest-direct"),
        "Writes rows to tables",
        grants.write_tables(names),
    )
    add_policy(
        stack,
        names.named("query"),
        "Reads rows of tables, by itself and by queries and exports that are sent to queues",
        (
            *grants.read_tables(names),
            *grants.send(names, QueueName.QUERY, QueueName.EXPORT),
            *grants.track(names, JobKind.QUERY, JobKind.EXPORT),
            *grants.read_bucket(names, buckets.query_results_bucket, buckets.bulk_export_bucket),
        ),
    )
    add_policy(
        stack,
        names.named("admin"),
        "Does all that can be done with the instance, but making and deleting its resources",
        (
            *grants.write_bucket(names, *buckets.buckets),
            *grants.write_items(names, *ALL_TABLES),
            *grants.administer_queues(names),
            *grants.call_functions(names),
        ),
    )
    return stack
