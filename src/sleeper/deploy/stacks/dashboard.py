"""The stack of the dashboard."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from aws_cdk import App, Stack
from aws_cdk import aws_cloudwatch as cloudwatch

from sleeper.deploy.settings import DeploymentSettings
from sleeper.deploy.stacks.new_stack import new_stack
from sleeper.deploy.stacks.watched import queue_functions, scheduled_functions, watched_queues

_WIDTH: Final = 12
_HEIGHT: Final = 6
_METRICS: Final = (
    "RowCount",
    "NumberOfFilesWithReferences",
    "LeafPartitionCount",
    "AverageFileReferencesPerPartition",
)


def add_dashboard_stack(app: App, settings: DeploymentSettings) -> Stack:
    """Add DashboardStack: queues, dead letters, functions and tables, over time."""
    stack = new_stack(
        app, settings, "DashboardStack", "a dashboard of queues, functions and tables"
    )
    cloudwatch.CfnDashboard(
        stack,
        "dashboard",
        dashboard_name=settings.names.named("dashboard"),
        dashboard_body=json.dumps({"widgets": _placed(_widgets(settings))}, separators=(",", ":")),
    )
    return stack


def _widgets(settings: DeploymentSettings) -> list[dict[str, Any]]:
    queues = watched_queues(settings)
    functions = (*queue_functions(settings), *scheduled_functions(settings))
    sqs = "AWS/SQS"
    visible = "ApproximateNumberOfMessagesVisible"
    shown: list[tuple[str, str, list[list[Any]]]] = [
        ("Messages", "Maximum", [[sqs, visible, "QueueName", each.queue] for each in queues]),
        ("Dead letters", "Maximum", [[sqs, visible, "QueueName", each.dead] for each in queues]),
        (
            "Seconds that the oldest message has waited",
            "Maximum",
            [[sqs, "ApproximateAgeOfOldestMessage", "QueueName", each.queue] for each in queues],
        ),
        (
            "Failures of functions",
            "Sum",
            [["AWS/Lambda", "Errors", "FunctionName", each] for each in functions],
        ),
    ]
    if settings.has("TableMetricsStack"):
        shown += [(metric, "Average", [_of_tables(settings, metric)]) for metric in _METRICS]
    period_s = settings.properties.cloud.dashboard_minutes * 60
    return [
        {
            "type": "metric",
            "properties": {
                "title": title,
                "region": settings.names.region,
                "stat": statistic,
                "period": period_s,
                "view": "timeSeries",
                "metrics": metrics,
            },
        }
        for title, statistic, metrics in shown
    ]


def _of_tables(settings: DeploymentSettings, metric: str) -> list[Any]:
    """Return the metric of each table, also of those that come later."""
    namespace = settings.properties.cloud.metrics_namespace
    found = (
        f'SEARCH(\'{{"{namespace}",instanceId,tableName}} MetricName="{metric}" '
        f"instanceId=\"{settings.names.instance_id}\"', 'Average')"
    )
    return [{"expression": found, "id": "tables"}]


def _placed(widgets: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Place widgets two in a line."""
    return [
        {
            **widget,
            "x": number % 2 * _WIDTH,
            "y": number // 2 * _HEIGHT,
            "width": _WIDTH,
            "height": _HEIGHT,
        }
        for number, widget in enumerate(widgets)
    ]
