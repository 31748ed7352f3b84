"""The stacks that split the partitions of tables, and collect their garbage."""

from __future__ import annotations

from aws_cdk import App, Stack

from sleeper.deploy.grants import write_tables
from sleeper.deploy.settings import DeploymentSettings
from sleeper.deploy.stacks.new_stack import new_stack
from sleeper.deploy.stacks.table_operation import TableOperation, add_table_operation


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
