"""The stacks that run jobs: for each kind what its workers, or its function, may do.

Kinds that run on platforms of bulk imports have stacks of their own, in `emr.py` and `eks.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aws_cdk import Stack
from constructs import Construct

from sleeper.deploy import grants
from sleeper.deploy.grants import Grant
from sleeper.deploy.settings import DeploymentSettings
from sleeper.deploy.stacks.parts import (
    AddStack,
    FunctionSpec,
    add_function,
    add_queue_source,
    add_schedule,
    follow_queue,
    new_stack,
)
from sleeper.deploy.stacks.workers import add_workers
from sleeper.model.jobs.kinds import (
    BULK_IMPORT_QUEUES,
    COMPACTION,
    JobKind,
    KindSpec,
    QueueName,
    kind_of,
)
from sleeper.model.stacks import StackName

BATCH_CREATOR: Final = "batcher-create-jobs"
"""The function that makes jobs of submitted files."""


def add_ingest_stack(scope: Construct, settings: DeploymentSettings) -> Stack:
    """Add IngestStack: workers on Fargate run ingest jobs."""
    names, properties = settings.names, settings.properties
    allowed = (
        *grants.write_tables(names),
        *grants.read_sources(names, properties.cloud.source_buckets or ()),
        *grants.track(names, JobKind.INGEST),
        *grants.consume(names, QueueName.INGEST),
        *grants.send(names, QueueName.COMMIT),
    )
    return _add_task_stack(scope, settings, kind_of("ingest"), "runs ingest jobs", allowed)


def add_batcher_stack(scope: Construct, settings: DeploymentSettings) -> Stack:
    """Add IngestBatcherStack: files that are submitted become jobs of a sensible size."""
    stack = new_stack(scope, settings, StackName.BATCHER, "makes jobs of submitted files")
    names, properties = settings.names, settings.properties
    lambdas = properties.lambdas
    submitter = FunctionSpec(
        name=_function("batcher"),
        handler="submit_to_batcher",
        description="Notes the files that are submitted to the batcher",
        memory_mb=lambdas.submitter_memory_mb,
        timeout_s=settings.timeout_s(
            properties.ingest_queue.submitter_timeout_s, QueueName.BATCHER
        ),
        grants=(
            *grants.open_instance(names),
            *grants.read_sources(names, properties.cloud.source_buckets or ()),
            *grants.read_files_beside_tables(names),
            *grants.batch(names),
            *grants.track(names, JobKind.INGEST),
            *grants.consume(names, QueueName.BATCHER),
        ),
        environment={},
    )
    taker = add_function(stack, settings, submitter)
    queue = names.queue(QueueName.BATCHER)
    source = add_queue_source(stack, taker, names.queue_arn(queue), batch=10, on_demand=True)
    followed, variables = follow_queue(settings, source, queue)
    creator = FunctionSpec(
        name=BATCH_CREATOR,
        handler="create_batches",
        description="Makes jobs of files that were submitted to the batcher",
        memory_mb=lambdas.batcher_memory_mb,
        timeout_s=lambdas.batcher_timeout_s,
        grants=(
            *grants.open_instance(names),
            *grants.batch(names),
            *grants.track(names, JobKind.INGEST),
            *grants.send(names, QueueName.INGEST, *BULK_IMPORT_QUEUES),
            *followed,
        ),
        environment=variables,
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


def add_query_stack(scope: Construct, settings: DeploymentSettings) -> Stack:
    """Add QueryStack: a function runs queries."""
    stack = new_stack(scope, settings, StackName.QUERY, "runs queries of the queue")
    names, lambdas = settings.names, settings.properties.lambdas
    query = FunctionSpec(
        name=_function("query"),
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
    add_function(stack, settings, query)
    return stack


def add_export_stack(scope: Construct, settings: DeploymentSettings) -> Stack:
    """Add BulkExportStack: workers on Fargate write the rows of tables to files."""
    names = settings.names
    allowed = (
        *grants.read_tables(names),
        *grants.track(names, JobKind.EXPORT),
        *grants.write_bucket(names, names.buckets.bulk_export_bucket),
        *grants.consume(names, QueueName.EXPORT),
    )
    return _add_task_stack(scope, settings, kind_of("export"), "runs exports of the queue", allowed)


def add_compaction_stack(scope: Construct, settings: DeploymentSettings) -> Stack:
    """Add CompactionStack: workers on Fargate plan, run and commit compactions."""
    allowed = (
        *grants.write_tables(settings.names),
        *grants.track(settings.names, JobKind.COMPACTION),
        *grants.send(settings.names, QueueName.COMMIT),
    )
    description = "compacts the files of tables"
    return _add_task_stack(scope, settings, kind_of(COMPACTION), description, allowed)


def add_committer_stack(scope: Construct, settings: DeploymentSettings) -> Stack:
    """Add StateStoreCommitterStack. Requests of one table are committed in order."""
    stack = new_stack(scope, settings, StackName.COMMITTER, "commits what workers ask it to")
    names, lambdas = settings.names, settings.properties.lambdas
    reserved, at_once = settings.at_once(lambdas.committer_reserved, lambdas.committer_max)
    if lambdas.committer_max is not None:  # what is reserved is a limit too, and the only one
        reserved = min(reserved or at_once, at_once)
    committer = FunctionSpec(
        name=_function("commit"),
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
    add_function(stack, settings, committer)
    return stack


def _add_task_stack(
    scope: Construct,
    settings: DeploymentSettings,
    kind: KindSpec,
    description: str,
    allowed: tuple[Grant, ...],
) -> Stack:
    """Add the stack of a kind whose workers run on Fargate.

    Args:
        scope: Where.
        settings: The settings of the deployment.
        kind: The kind.
        description: What the stack does.
        allowed: What a worker may do.
    """
    assert kind.stack is not None, "a kind on Fargate has a stack"
    stack = new_stack(scope, settings, kind.stack, description)
    add_workers(stack, settings, kind, allowed)
    return stack


def _function(kind: str) -> str:
    """Return the name of the function that gets the messages of a kind."""
    name = kind_of(kind).function
    assert name is not None, "the kind is run by a function"
    return name


STACKS: Final[Mapping[StackName, AddStack]] = {
    StackName.INGEST: add_ingest_stack,
    StackName.BATCHER: add_batcher_stack,
    StackName.EXPORT: add_export_stack,
    StackName.QUERY: add_query_stack,
    StackName.COMPACTION: add_compaction_stack,
}
"""What adds each of them that can be chosen."""
