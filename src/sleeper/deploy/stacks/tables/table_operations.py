"""The stacks that split the partitions of tables and collect their garbage."""

from __future__ import annotations

from aws_cdk import App, Stack

from sleeper.deploy.grants import write_tables
from sleeper.deploy.settings import DeploymentSettings
from sleeper.deploy.stacks.parts.new_stack import new_stack
from sleeper.deploy.stacks.parts.table_operation import TableOperation, add_table_operation


def add_garbage_stack(app: App, settings: DeploymentSettings) -> Stack:
    """Add GarbageCollectorStack: garbage is collected, and once a day orphans are swept."""
    stack = new_stack(app, settings, "GarbageCollectorStack", "collects garbage of tables")
    lambdas = settings.properties.lambdas
    operation = TableOperation(
        operation="collect",
        name="garbage-collector",
        queue="GCJobQ",
        dead_letters="GCJobDLQ",
        minutes=settings.properties.gc.period_minutes,
        memory_mb=settings.memory_mb(lambdas.gc_memory_mb),
        timeout_s=lambdas.gc_timeout_s,
        batch=lambdas.gc_tables,
        reserved=lambdas.at_once_reserved if lambdas.gc_reserved is None else lambdas.gc_reserved,
        at_once=lambdas.gc_max or lambdas.at_once_max,
        grants=write_tables(settings.names),
    )
    add_table_operation(stack, settings, operation)
    return stack
