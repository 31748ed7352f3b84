"""The stacks of what `sleeper init aws://` makes: buckets, tables in DynamoDB, and queues."""

from __future__ import annotations

from aws_cdk import App, Stack

from sleeper.deploy.settings import DeploymentSettings
from sleeper.deploy.stacks.buckets import add_bucket
from sleeper.deploy.stacks.dynamo_tables import add_table
from sleeper.deploy.stacks.new_stack import new_stack
from sleeper.deploy.stacks.queues import add_queue
from sleeper.model.jobs.messages import QueueName
from sleeper.storage.aws.deployment.made_tables import (
    ALL_TABLES,
    INDEX_TABLES,
    REVISION_TABLES,
    STATE_TABLES,
)
from sleeper.storage.aws.dynamo_making import DynamoTable


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
