"""The stack of policies that a user can attach to roles of people and programs."""

from __future__ import annotations

from aws_cdk import App, Stack

from sleeper.deploy import grants
from sleeper.deploy.settings import DeploymentSettings
from sleeper.deploy.stacks.new_stack import new_stack
from sleeper.deploy.stacks.roles import add_policy
from sleeper.model.jobs.events import JobKind
from sleeper.model.jobs.messages import BULK_IMPORT_QUEUES, QueueName
from sleeper.storage.aws.deployment.made_tables import ALL_TABLES


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
