"""The stack that measures tables."""

from __future__ import annotations

from aws_cdk import App, Stack

from sleeper.deploy.grants import read_tables
from sleeper.deploy.settings import DeploymentSettings
from sleeper.deploy.stacks.new_stack import new_stack
from sleeper.deploy.stacks.table_operation import TableOperation, add_table_operation


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
