"""The stacks of every instance: buckets, tables in DynamoDB, queues, and policies of users."""

from __future__ import annotations

from dataclasses import dataclass

from aws_cdk import Stack
from constructs import Construct

from sleeper.deploy import grants
from sleeper.deploy.grants import Grant
from sleeper.deploy.settings import DeploymentSettings
from sleeper.deploy.stacks.parts import add_bucket, add_policy, add_queue, add_table, new_stack
from sleeper.model.jobs.kinds import ANSWERS, JobKind, QueueName, Senders, queues_from
from sleeper.model.stacks import StackName
from sleeper.storage.aws.deployment.keeping import Keeping
from sleeper.storage.aws.deployment.table_index import ALL_TABLES


def add_instance_stack(scope: Construct, settings: DeploymentSettings) -> Stack:
    """Add the stack of buckets and tables."""
    stack = new_stack(scope, settings, StackName.INSTANCE, "buckets, and tables in DynamoDB")
    retain, names = settings.properties.cloud.retains_data, settings.names
    keeping = Keeping.of(settings.properties.cloud)
    for bucket in names.buckets.buckets:
        add_bucket(
            stack,
            bucket,
            retain=retain,
            expiry_days=_expiry_days(settings, bucket),
            old_days=keeping.days_in(bucket, names.buckets),
        )
    for table in ALL_TABLES:
        add_table(
            stack,
            names.table(table),
            table,
            retain=retain,
            recovers=table in keeping.recovered,
            protects=table in keeping.protected,
        )
    return stack


def add_queues_stack(scope: Construct, settings: DeploymentSettings) -> Stack:
    """Add the stack of queues."""
    stack = new_stack(scope, settings, StackName.QUEUES, "queues of jobs, and of dead letters")
    names = settings.names
    for queue in QueueName:
        add_queue(stack, names.queues(queue), settings.queue(queue))
    return stack


def _expiry_days(settings: DeploymentSettings, bucket: str) -> int | None:
    buckets, properties = settings.names.buckets, settings.properties
    if bucket == buckets.query_results_bucket:
        return properties.query_queue.results_days
    return properties.export_queue.results_days if bucket == buckets.bulk_export_bucket else None


# ---------------------------------------------------------------- policies
#
# The stack of policies that a user can attach to roles of people and programs.


@dataclass(frozen=True, slots=True)
class UserPolicy:
    """A policy for users.

    Attributes:
        name: Its name, after the instance's prefix.
        description: What it allows.
        grants: The same in detail.
    """

    name: str
    description: str
    grants: tuple[Grant, ...]


def user_policies(settings: DeploymentSettings) -> tuple[UserPolicy, ...]:
    """Return the policies for users of an instance."""
    names, buckets = settings.names, settings.names.buckets
    return (
        UserPolicy(
            Senders.INGEST,
            "Submits ingest jobs, bulk imports and files of the batcher, and sees what becomes of "
            "them",
            (
                *grants.read_states(names),
                *grants.read_sources(names, settings.properties.cloud.source_buckets or ()),
                *grants.send(names, *queues_from(Senders.INGEST)),
                *grants.track(names, JobKind.INGEST),
            ),
        ),
        UserPolicy("ingest-direct", "Writes rows to tables", grants.write_tables(names)),
        UserPolicy(
            Senders.QUERY,
            "Reads rows of tables, by itself and by queries and exports that are sent to queues",
            (
                *grants.read_tables(names),
                *grants.send(names, *queues_from(Senders.QUERY)),
                *grants.track(names, *ANSWERS),
                *grants.read_bucket(
                    names, buckets.query_results_bucket, buckets.bulk_export_bucket
                ),
            ),
        ),
        UserPolicy(
            "admin",
            "Does all that can be done with the instance, but making and deleting its resources",
            (
                *grants.write_bucket(names, *buckets.buckets),
                *grants.delete_versions(names, *buckets.buckets),  # for purges
                *grants.write_items(names, *ALL_TABLES),
                *grants.administer_queues(names),
                *grants.call_functions(names),
            ),
        ),
    )


def add_policies_stack(scope: Construct, settings: DeploymentSettings) -> Stack:
    """Add the stack of policies."""
    stack = new_stack(scope, settings, StackName.POLICIES, "policies for users of the instance")
    for each in user_policies(settings):
        add_policy(stack, settings.names.named(each.name), each.description, each.grants)
    return stack
