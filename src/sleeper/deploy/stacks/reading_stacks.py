"""The stacks of queries and of exports that come from queues."""

from __future__ import annotations

from aws_cdk import App, Stack

from sleeper.deploy import grants
from sleeper.deploy.settings import DeploymentSettings
from sleeper.deploy.stacks.functions import FunctionSpec, add_function, add_queue_source
from sleeper.deploy.stacks.new_stack import new_stack
from sleeper.deploy.stacks.tasks import add_workers
from sleeper.model.jobs.events import JobKind
from sleeper.model.jobs.messages import QueueName


def add_query_stack(app: App, settings: DeploymentSettings) -> Stack:
    """Add QueryStack: a function runs queries."""
    stack = new_stack(app, settings, "QueryStack", "runs queries of the queue")
    names, lambdas = settings.names, settings.properties.lambdas
    query = FunctionSpec(
        name="query",
        handler="query",
        description="Runs queries of the queue",
        memory_mb=settings.memory_mb(lambdas.query_memory_mb),
        timeout_s=settings.timeout_s(lambdas.query_timeout_s, QueueName.QUERY),
        grants=(
            *grants.read_tables(names),
            *grants.track(names, JobKind.QUERY),
            *grants.write_bucket(names, names.buckets.query_results_bucket),
            *grants.consume(names, QueueName.QUERY),
        ),
        environment={},
    )
    function = add_function(stack, settings, query)
    add_queue_source(stack, function, names.queue_arn(names.queue(QueueName.QUERY)))
    return stack


def add_export_stack(app: App, settings: DeploymentSettings) -> Stack:
    """Add BulkExportStack: workers on Fargate write the rows of tables to files."""
    stack = new_stack(app, settings, "BulkExportStack", "runs exports of the queue")
    names = settings.names
    allowed = (
        *grants.read_tables(names),
        *grants.track(names, JobKind.EXPORT),
        *grants.write_bucket(names, names.buckets.bulk_export_bucket),
        *grants.consume(names, QueueName.EXPORT),
    )
    minutes = settings.properties.tasks.export_period_minutes
    add_workers(stack, settings, "export", allowed, minutes=minutes)
    return stack
