"""The stacks that split the partitions of tables, and collect their garbage."""

from __future__ import annotations

from dataclasses import dataclass

from aws_cdk import App, Stack

from sleeper.deploy import grants
from sleeper.deploy.grants import (
    Grant,
    consume_from,
    look_for_work,
    read_tables,
    send_to,
    write_tables,
)
from sleeper.deploy.settings import DeploymentSettings
from sleeper.deploy.stacks.functions import (
    FunctionSpec,
    add_function,
    add_queue_source,
    add_schedule,
)
from sleeper.deploy.stacks.resources import add_queue, new_stack
from sleeper.deploy.stacks.workers import add_workers
from sleeper.model.jobs.events import JobKind
from sleeper.model.jobs.messages import QueueName, QueueSettings
from sleeper.storage.aws.jobs.sqs_calls import SqsNames

# ---------------------------------------------------------------- table operation
#
# An operation on every online table: at most one of a table at once.


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOperation:
    """An operation to add.

    Attributes:
        operation: What handlers call it, such as `split`.
        name: The name of its function, after the instance's prefix.
        queues: The names of its queue and of that of its dead letters.
        minutes: How often every table gets a message.
        memory_mb: Memory of the function.
        timeout_s: How long the function may take.
        batch: Tables in one call, at most.
        reserved: Concurrency of the account that it has for itself; None for none.
        at_once: Tables at once, at most.
        grants: What the function may do, but for opening the instance and taking messages.
    """

    operation: str
    name: str
    queues: SqsNames
    minutes: int
    memory_mb: int
    timeout_s: int
    batch: int
    reserved: int | None
    at_once: int
    grants: tuple[Grant, ...]


def add_table_operation(
    stack: Stack, settings: DeploymentSettings, operation: TableOperation
) -> None:
    """Add what an operation needs.

    A schedule calls the trigger, which sends one message for each online table to a FIFO queue; the
    table's id is its group, so the function is not called twice at once for a table.
    """
    names, lambdas = settings.names, settings.properties.lambdas
    queue = operation.queues.queue
    visibility_s = float(operation.timeout_s)
    add_queue(stack, operation.queues, QueueSettings(fifo=True, visibility_s=visibility_s))
    trigger = FunctionSpec(
        name=f"{operation.name}-trigger",
        handler="trigger_tables",
        description=f"Sends a message for each online table, to {operation.operation} it",
        memory_mb=lambdas.trigger_memory_mb,
        timeout_s=lambdas.trigger_timeout_s,
        grants=(*look_for_work(names), *send_to(names, queue)),
        environment={"SLEEPER_TABLES_QUEUE_URL": names.queue_url(queue)},
    )
    add_function(stack, settings, trigger)
    add_schedule(
        stack,
        settings,
        f"{operation.name}-rule",
        function=trigger.name,
        minutes=operation.minutes,
        event={"operation": operation.operation},
    )
    run = FunctionSpec(
        name=operation.name,
        handler="run_tables",
        description=f"Does {operation.operation} of one table after the other",
        memory_mb=operation.memory_mb,
        timeout_s=operation.timeout_s,
        grants=(*operation.grants, *consume_from(names, queue)),
        environment={},
        reserved=operation.reserved,
    )
    made = add_function(stack, settings, run)
    made.node.add_dependency(stack.node.find_child(queue))
    add_queue_source(
        stack, made, names.queue_arn(queue), batch=operation.batch, at_once=operation.at_once
    )


def add_garbage_stack(app: App, settings: DeploymentSettings) -> Stack:
    """Add GarbageCollectorStack: garbage is collected, and once a day orphans are swept."""
    stack = new_stack(app, settings, "GarbageCollectorStack", "collects garbage of tables")
    lambdas = settings.properties.lambdas
    reserved, at_once = settings.at_once(lambdas.gc_reserved, lambdas.gc_max)
    operation = TableOperation(
        operation="collect",
        name="garbage-collector",
        queues=settings.names.operation_queues("GarbageCollectorStack"),
        minutes=settings.properties.gc.period_minutes,
        memory_mb=settings.memory_mb(lambdas.gc_memory_mb),
        timeout_s=lambdas.gc_timeout_s,
        batch=lambdas.gc_tables,
        reserved=reserved,
        at_once=at_once,
        grants=write_tables(settings.names),
    )
    add_table_operation(stack, settings, operation)
    return stack


def add_splitting_stack(app: App, settings: DeploymentSettings) -> Stack:
    """Add PartitionSplittingStack: large leaf partitions are split, and small ones merged."""
    stack = new_stack(app, settings, "PartitionSplittingStack", "splits partitions of tables")
    lambdas = settings.properties.lambdas
    reserved, at_once = settings.at_once(lambdas.splitting_reserved, lambdas.splitting_max)
    operation = TableOperation(
        operation="split",
        name="partition-splitter",
        queues=settings.names.operation_queues("PartitionSplittingStack"),
        minutes=settings.properties.splitting.period_minutes,
        memory_mb=settings.memory_mb(lambdas.splitting_memory_mb),
        timeout_s=lambdas.splitting_timeout_s,
        batch=lambdas.splitting_tables,
        reserved=reserved,
        at_once=at_once,
        grants=write_tables(settings.names),
    )
    add_table_operation(stack, settings, operation)
    return stack


# ---------------------------------------------------------------- compaction stack
#
# The stack of compactions.


def add_compaction_stack(app: App, settings: DeploymentSettings) -> Stack:
    """Add CompactionStack: workers on Fargate plan, run and commit compactions."""
    stack = new_stack(app, settings, "CompactionStack", "compacts the files of tables")
    allowed = (
        *grants.write_tables(settings.names),
        *grants.track(settings.names, JobKind.COMPACTION),
        *grants.send(settings.names, QueueName.COMMIT),
    )
    minutes = settings.properties.tasks.compaction_period_minutes
    add_workers(stack, settings, "compaction", allowed, minutes=minutes)
    return stack


# ---------------------------------------------------------------- metrics
#
# The stack that measures tables.


def add_metrics_stack(app: App, settings: DeploymentSettings) -> Stack:
    """Add TableMetricsStack: rows, files and partitions of each table, as metrics of CloudWatch.

    The function prints them in CloudWatch's embedded format, so it needs no permission for that.
    """
    stack = new_stack(app, settings, "TableMetricsStack", "measures tables")
    lambdas = settings.properties.lambdas
    reserved, at_once = settings.at_once(lambdas.metrics_reserved, lambdas.metrics_max)
    operation = TableOperation(
        operation="measure",
        name="table-metrics",
        queues=settings.names.operation_queues("TableMetricsStack"),
        minutes=settings.properties.cloud.metrics_minutes,
        memory_mb=lambdas.trigger_memory_mb,
        timeout_s=lambdas.trigger_timeout_s,
        batch=lambdas.metrics_tables,
        reserved=reserved,
        at_once=at_once,
        grants=read_tables(settings.names),
    )
    add_table_operation(stack, settings, operation)
    return stack
