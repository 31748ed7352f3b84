"""The stacks that watch: alarms of dead letters, delays and failures, and a dashboard."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from aws_cdk import App, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_sns as sns

from sleeper.deploy.names import TABLE_OPERATIONS, OperationNames
from sleeper.deploy.platforms import state_machine_arn
from sleeper.deploy.settings import DeploymentSettings
from sleeper.deploy.stacks.jobs import BATCH_CREATOR
from sleeper.deploy.stacks.parts import new_stack
from sleeper.deploy.stacks.workers import STARTER
from sleeper.model.jobs.kinds import KINDS, QUEUES
from sleeper.model.jobs.platforms import EKS
from sleeper.model.stacks import StackName
from sleeper.storage.aws.jobs.sqs_calls import SqsNames

# ---------------------------------------------------------------- what is watched
#
# What of a deployment is watched: the queues and functions of the stacks that it has.


def watched_queues(settings: DeploymentSettings) -> tuple[SqsNames, ...]:
    """Return the queues that something takes messages from."""
    taken = {each.stack: each.name for each in QUEUES.values()}
    jobs = [taken[each] for each in (StackName.COMMITTER, *settings.stacks) if each in taken]
    return (
        *map(settings.names.queues, jobs),
        *map(settings.names.operation_queues, _operations(settings)),
    )


def scheduled_functions(settings: DeploymentSettings) -> tuple[str, ...]:
    """Return the names of functions that are called by schedules: no queue has what they failed."""
    starter = [STARTER] if settings.has_tasks else []
    batcher = [BATCH_CREATOR] if settings.has(StackName.BATCHER) else []
    triggers = [each.trigger for each in _operations(settings)]
    return tuple(map(settings.names.function, (*starter, *batcher, *triggers)))


def queue_functions(settings: DeploymentSettings) -> tuple[str, ...]:
    """Return the names of functions that are called with messages of queues."""
    of_stacks = {each.stack: each.function for each in KINDS if each.function}
    of_stacks |= {stack: each.function for stack, each in TABLE_OPERATIONS.items()}
    stacks = (StackName.COMMITTER, *settings.stacks)
    named = [of_stacks[each] for each in stacks if each in of_stacks]
    return tuple(map(settings.names.function, named))


def _operations(settings: DeploymentSettings) -> list[OperationNames]:
    return [TABLE_OPERATIONS[each] for each in settings.stacks if each in TABLE_OPERATIONS]


# ---------------------------------------------------------------- alarms
#
# The stack of alarms.

_PERIOD_S: Final = 300


def add_alarms_stack(app: App, settings: DeploymentSettings) -> Stack:
    """Add AlarmsStack. Each alarm is sent to a topic, and by it to `sleeper.errors.email`."""
    stack = new_stack(
        app, settings, StackName.ALARMS, "alarms of dead letters, delays and failures"
    )
    topic = _add_topic(stack, settings)
    age_s = settings.properties.cloud.alarm_minutes * 60
    for queue in watched_queues(settings):
        _add_queue_alarms(stack, queue, topic, age_s)
    for function in scheduled_functions(settings):
        cloudwatch.CfnAlarm(
            stack,
            f"{function}-failures",
            alarm_name=f"{function}-failures",
            alarm_description=f"{function} failed several times: look at its logs.",
            namespace="AWS/Lambda",
            metric_name="Errors",
            dimensions=_dimension("FunctionName", function),
            statistic="Sum",
            threshold=3,
            **_how(topic),
        )
    if settings.has(EKS.stack):
        _add_execution_alarm(stack, settings, topic)
    return stack


def _add_execution_alarm(stack: Stack, settings: DeploymentSettings, topic: str) -> None:
    """Add the alarm of jobs on EKS whose driver could not start, which no tracker knows."""
    runs = settings.names.named(EKS.resource)
    name = f"{runs}-failed"
    cloudwatch.CfnAlarm(
        stack,
        name,
        alarm_name=name,
        alarm_description=f"Runs of {runs} failed: look at the causes.",
        namespace="AWS/States",
        metric_name="ExecutionsFailed",
        dimensions=_dimension("StateMachineArn", state_machine_arn(settings.names)),
        statistic="Sum",
        threshold=1,
        **_how(topic),
    )


def _add_queue_alarms(stack: Stack, queue: SqsNames, topic: str, age_s: int) -> None:
    for name, of, metric, threshold, description in (
        (
            f"{queue.dead}-not-empty",
            queue.dead,
            "ApproximateNumberOfMessagesVisible",
            1,
            f"Jobs failed for good: `sleeper queue dead-letters` shows those of {queue.dead}.",
        ),
        (
            f"{queue.queue}-waits",
            queue.queue,
            "ApproximateAgeOfOldestMessage",
            age_s,
            f"A message of {queue.queue} has waited for {age_s} seconds: look whether it is taken.",
        ),
    ):
        cloudwatch.CfnAlarm(
            stack,
            name,
            alarm_name=name,
            alarm_description=description,
            namespace="AWS/SQS",
            metric_name=metric,
            dimensions=_dimension("QueueName", of),
            statistic="Maximum",
            threshold=threshold,
            **_how(topic),
        )


def _dimension(name: str, value: str) -> list[cloudwatch.CfnAlarm.DimensionProperty]:
    return [cloudwatch.CfnAlarm.DimensionProperty(name=name, value=value)]


def _how(topic: str) -> dict[str, Any]:
    return {
        "comparison_operator": "GreaterThanOrEqualToThreshold",
        "evaluation_periods": 1,
        "period": _PERIOD_S,
        "treat_missing_data": "notBreaching",
        "alarm_actions": [topic],
    }


def _add_topic(stack: Stack, settings: DeploymentSettings) -> str:
    """Add the topic of alarms; return its ARN.

    It is not encrypted by a key: alarms cannot use Amazon's own, and one of yours costs by the
    month. A message says the name of an alarm, and no data.
    """
    names, email = settings.names, settings.properties.cloud.errors_email
    name = names.named("alarms")
    topic = sns.CfnTopic(
        stack, "topic", topic_name=name, display_name=f"Sleeper {names.instance_id}"
    )
    sns.CfnTopicPolicy(
        stack,
        "topic-policy",
        topics=[topic.ref],
        policy_document={
            "Version": "2012-10-17",
            "Statement": [
                {
                    "Effect": "Allow",
                    "Principal": {"Service": "cloudwatch.amazonaws.com"},
                    "Action": "sns:Publish",
                    "Resource": topic.ref,
                    "Condition": {"StringEquals": {"aws:SourceAccount": names.account}},
                },
                {
                    "Effect": "Deny",
                    "Principal": "*",
                    "Action": "sns:Publish",
                    "Resource": topic.ref,
                    "Condition": {"Bool": {"aws:SecureTransport": "false"}},
                },
            ],
        },
    )
    if email is not None:
        sns.CfnSubscription(
            stack, "subscription", topic_arn=topic.ref, protocol="email", endpoint=email
        )
    return str(topic.ref)


# ---------------------------------------------------------------- dashboard
#
# The stack of the dashboard.

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
        app, settings, StackName.DASHBOARD, "a dashboard of queues, functions and tables"
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
    if settings.has(StackName.METRICS):
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
