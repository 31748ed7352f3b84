"""The stacks of ingest jobs, and of the batcher, which makes jobs of files."""

from __future__ import annotations

from aws_cdk import App, Stack

from sleeper.deploy import grants
from sleeper.deploy.settings import DeploymentSettings
from sleeper.deploy.stacks.functions import (
    FunctionSpec,
    add_function,
    add_queue_source,
    add_schedule,
)
from sleeper.deploy.stacks.resources import new_stack
from sleeper.deploy.stacks.workers import add_workers
from sleeper.model.jobs.events import JobKind
from sleeper.model.jobs.messages import BULK_IMPORT_QUEUES, QueueName


def add_ingest_stack(app: App, settings: DeploymentSettings) -> Stack:
    """Add IngestStack: workers on Fargate run ingest jobs."""
    stack = new_stack(app, settings, "IngestStack", "runs ingest jobs")
    names, properties = settings.names, settings.properties
    allowed = (
        *grants.write_tables(names),
        *grants.read_sources(names, properties.cloud.source_buckets or ()),
        *grants.track(names, JobKind.INGEST),
        *grants.consume(names, QueueName.INGEST),
        *grants.send(names, QueueName.COMMIT),
    )
    minutes = properties.tasks.ingest_period_minutes
    add_workers(stack, settings, "ingest", allowed, minutes=minutes)
    return stack


def add_batcher_stack(app: App, settings: DeploymentSettings) -> Stack:
    """Add IngestBatcherStack: files that are submitted become jobs of a sensible size."""
    stack = new_stack(app, settings, "IngestBatcherStack", "makes jobs of submitted files")
    names, properties = settings.names, settings.properties
    lambdas = properties.lambdas
    submitter = FunctionSpec(
        name="batcher-submit",
        handler="submit_to_batcher",
        description="Notes the files that are submitted to the batcher",
        memory_mb=lambdas.submitter_memory_mb,
        timeout_s=settings.timeout_s(
            properties.ingest_queue.submitter_timeout_s, QueueName.BATCHER
        ),
        grants=(
            *grants.open_instance(names),
            *grants.read_sources(names, properties.cloud.source_buckets or ()),
            *grants.read_bucket(names, names.buckets.data_bucket),
            *grants.batch(names),
            *grants.consume(names, QueueName.BATCHER),
        ),
        environment={},
    )
    taker = add_function(stack, settings, submitter)
    add_queue_source(stack, taker, names.queue_arn(names.queue(QueueName.BATCHER)), batch=10)
    creator = FunctionSpec(
        name="batcher-create-jobs",
        handler="create_batches",
        description="Makes jobs of files that were submitted to the batcher",
        memory_mb=lambdas.batcher_memory_mb,
        timeout_s=lambdas.batcher_timeout_s,
        grants=(
            *grants.open_instance(names),
            *grants.batch(names),
            *grants.track(names, JobKind.INGEST),
            *grants.send(names, QueueName.INGEST, *BULK_IMPORT_QUEUES),
        ),
        environment={},
        reserved=1,  # one after the other
    )
    add_function(stack, settings, creator)
    add_schedule(
        stack,
        settings,
        "batcher-rule",
        function=creator.name,
        minutes=properties.batcher.period_minutes,
        event={},
    )
    return stack


# ---------------------------------------------------------------- reading stacks
#
# The stacks of queries and of exports that come from queues.


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
