"""The stacks of operations on every online table: garbage, splits and merges, metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from aws_cdk import Stack
from constructs import Construct

from sleeper.deploy.grants import (
    Grant,
    consume_from,
    look_for_work,
    read_states,
    send_to,
    write_tables,
)
from sleeper.deploy.names import TABLE_OPERATIONS, OperationNames
from sleeper.deploy.settings import DeploymentSettings
from sleeper.deploy.stacks.parts import (
    AddStack,
    FunctionSpec,
    add_function,
    add_queue,
    add_queue_source,
    add_schedule,
    follow_queue,
    new_stack,
)
from sleeper.model.jobs.messages import QueueSettings
from sleeper.model.stacks import StackName


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationSpec:
    """How an operation is run.

    Attributes:
        minutes: How often every table gets a message.
        memory_mb: Memory of the function.
        timeout_s: How long the function may take.
        batch: Tables in one call, at most.
        reserved: Concurrency of the account that it has for itself; None for none.
        at_once: Tables at once, at most.
        grants: What the function may do, but for opening the instance and taking messages.
    """

    minutes: int
    memory_mb: int
    timeout_s: int
    batch: int
    reserved: int | None
    at_once: int
    grants: tuple[Grant, ...]


def _add_operation(
    stack: Stack, settings: DeploymentSettings, operation: OperationNames, spec: OperationSpec
) -> None:
    """Add what an operation on every online table needs: at most one of a table at once.

    A schedule calls the trigger, which sends one message for each online table to a FIFO queue; the
    table's id is its group, so the function is not called twice at once for a table. Lambda asks
    the queue for messages only while there are some: the trigger enables and disables the mapping.
    """
    names, lambdas = settings.names, settings.properties.lambdas
    queues = names.operation_queues(operation)
    queue = queues.queue
    visibility_s = float(spec.timeout_s)
    add_queue(stack, queues, QueueSettings(fifo=True, visibility_s=visibility_s))
    run = FunctionSpec(
        name=operation.function,
        handler="run_tables",
        description=f"Does {operation.name} of one table after the other",
        memory_mb=spec.memory_mb,
        timeout_s=spec.timeout_s,
        grants=(*spec.grants, *consume_from(names, queue)),
        environment={},
        reserved=spec.reserved,
    )
    made = add_function(stack, settings, run)
    made.node.add_dependency(stack.node.find_child(queue))
    source = add_queue_source(
        stack,
        made,
        names.queue_arn(queue),
        batch=spec.batch,
        at_once=spec.at_once,
        on_demand=True,
    )
    allowed, variables = follow_queue(settings, source, queue)
    trigger = FunctionSpec(
        name=operation.trigger,
        handler="trigger_tables",
        description=f"Sends a message for each online table, to {operation.name} it",
        memory_mb=lambdas.trigger_memory_mb,
        timeout_s=lambdas.trigger_timeout_s,
        grants=(*look_for_work(names), *send_to(names, queue), *allowed),
        environment={"SLEEPER_TABLES_QUEUE_URL": names.queue_url(queue), **variables},
    )
    add_function(stack, settings, trigger)
    add_schedule(
        stack,
        settings,
        f"{operation.function}-rule",
        function=trigger.name,
        minutes=spec.minutes,
        event={"operation": operation.name},
    )


def add_garbage_stack(scope: Construct, settings: DeploymentSettings) -> Stack:
    """Add GarbageCollectorStack: garbage is collected, and once a day orphans are swept."""
    stack = new_stack(scope, settings, StackName.GARBAGE, "collects garbage of tables")
    lambdas = settings.properties.lambdas
    reserved, at_once = settings.at_once(lambdas.gc_reserved, lambdas.gc_max)
    spec = OperationSpec(
        minutes=settings.properties.gc.period_minutes,
        memory_mb=settings.memory_mb(lambdas.gc_memory_mb),
        timeout_s=lambdas.gc_timeout_s,
        batch=lambdas.gc_tables,
        reserved=reserved,
        at_once=at_once,
        grants=write_tables(settings.names),
    )
    _add_operation(stack, settings, TABLE_OPERATIONS[StackName.GARBAGE], spec)
    return stack


def add_splitting_stack(scope: Construct, settings: DeploymentSettings) -> Stack:
    """Add PartitionSplittingStack: large leaf partitions are split, and small ones merged."""
    stack = new_stack(scope, settings, StackName.SPLITTING, "splits partitions of tables")
    lambdas = settings.properties.lambdas
    reserved, at_once = settings.at_once(lambdas.splitting_reserved, lambdas.splitting_max)
    spec = OperationSpec(
        minutes=settings.properties.splitting.period_minutes,
        memory_mb=settings.memory_mb(lambdas.splitting_memory_mb),
        timeout_s=lambdas.splitting_timeout_s,
        batch=lambdas.splitting_tables,
        reserved=reserved,
        at_once=at_once,
        grants=write_tables(settings.names),
    )
    _add_operation(stack, settings, TABLE_OPERATIONS[StackName.SPLITTING], spec)
    return stack


def add_metrics_stack(scope: Construct, settings: DeploymentSettings) -> Stack:
    """Add TableMetricsStack: rows, files and partitions of each table, as metrics of CloudWatch.

    The function prints them in CloudWatch's embedded format, so it needs no permission for that.
    """
    stack = new_stack(scope, settings, StackName.METRICS, "measures tables")
    lambdas = settings.properties.lambdas
    reserved, at_once = settings.at_once(lambdas.metrics_reserved, lambdas.metrics_max)
    spec = OperationSpec(
        minutes=settings.properties.cloud.metrics_minutes,
        memory_mb=lambdas.trigger_memory_mb,
        timeout_s=lambdas.trigger_timeout_s,
        batch=lambdas.metrics_tables,
        reserved=reserved,
        at_once=at_once,
        grants=read_states(settings.names),
    )
    _add_operation(stack, settings, TABLE_OPERATIONS[StackName.METRICS], spec)
    return stack


STACKS: Final[Mapping[StackName, AddStack]] = {
    StackName.GARBAGE: add_garbage_stack,
    StackName.SPLITTING: add_splitting_stack,
    StackName.METRICS: add_metrics_stack,
}
"""What adds each of them."""
