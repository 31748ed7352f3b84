"""The stacks that watch: alarms of dead letters, delays and failures, and a dashboard."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from aws_cdk import Stack
from aws_cdk import aws_budgets as budgets
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_sns as sns
from constructs import Construct

from sleeper.deploy.grants import Grant
from sleeper.deploy.names import TABLE_OPERATIONS, OperationNames
from sleeper.deploy.platforms import state_machine_arn
from sleeper.deploy.settings import DeploymentSettings
from sleeper.deploy.stacks.failures import ERRORS, TOPIC, add_failure_rule, namespace
from sleeper.deploy.stacks.jobs import BATCH_CREATOR
from sleeper.deploy.stacks.parts import FunctionSpec, add_function, add_schedule, new_stack
from sleeper.deploy.stacks.workers import CLUSTER, STARTER
from sleeper.model.jobs.kinds import KINDS, QUEUES, QueueName
from sleeper.model.jobs.platforms import EKS, EMR, PERSISTENT_EMR
from sleeper.model.stacks import StackName
from sleeper.storage.aws.clients import OWNER_TAG, owner_tag_value
from sleeper.storage.aws.jobs.queue_watch import DEAD_LETTERS, OLDEST, TASKS
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


def all_queues(settings: DeploymentSettings) -> tuple[SqsNames, ...]:
    """Return all queues that there are, also those that only processes of a user take from."""
    return (
        *map(settings.names.queues, QueueName),
        *map(settings.names.operation_queues, _operations(settings)),
    )


def scheduled_functions(settings: DeploymentSettings) -> tuple[str, ...]:
    """Return the names of functions that are called by schedules: no queue has what they failed."""
    batcher = [BATCH_CREATOR] if settings.has(StackName.BATCHER) else []
    triggers = [each.trigger for each in _operations(settings)]
    return tuple(map(settings.names.function, (STARTER, *batcher, *triggers)))


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
# The stack of alarms, and of rules that send failures to the topic. CloudWatch is paid by the
# metric that an alarm looks at, so there is one alarm of a kind, over all queues and functions.

WATCHER: Final = "queue-watch"
"""The function that looks at all queues."""

_PERIOD_S: Final = 900
_ERRORS_MIN: Final = 3
_THROTTLES_MIN: Final = 100
_WATCHER_MB: Final = 512
_DAY_S: Final = 86_400


def add_alarms_stack(scope: Construct, settings: DeploymentSettings) -> Stack:
    """Add AlarmsStack. All is sent to one topic, and by it to `sleeper.errors.email`.

    What each alarm and rule means, and what to do, is in docs/operating/alarms.md.
    """
    stack = new_stack(
        scope, settings, StackName.ALARMS, "alarms of dead letters, delays and failures"
    )
    cloud = settings.properties.cloud
    topic = _add_topic(stack, settings)
    _add_function_alarms(stack, settings, topic)
    _add_queue_alarms(stack, settings, topic)
    if settings.has_tasks:
        _add_task_rule(stack, settings)
        if cloud.tasks_alarm is not None:
            _add_task_alarm(stack, settings, topic, cloud.tasks_alarm)
    if cloud.budget_dollars is not None:
        _add_budget(stack, settings, topic, cloud.budget_dollars)
    if settings.has(EMR.stack) or settings.has(PERSISTENT_EMR.stack):
        _add_emr_rule(stack, settings)
    if settings.has(EKS.stack):
        _add_execution_rule(stack, settings)
    return stack


def _add_function_alarms(stack: Stack, settings: DeploymentSettings, topic: str) -> None:
    _add_alarm(
        stack,
        settings,
        topic,
        "function-errors",
        "Functions failed several times: look at their logs.",
        metric=(namespace(settings), ERRORS),
        statistic="Sum",
        threshold=_ERRORS_MIN,
        period_s=_PERIOD_S,
    )
    _add_alarm(
        stack,
        settings,
        topic,
        "function-throttles",
        "Calls of functions in this account and region were refused, for too many ran at once: "
        "functions of the instance may wait.",
        metric=("AWS/Lambda", "Throttles"),  # without a dimension: of all functions
        statistic="Sum",
        threshold=_THROTTLES_MIN,
        period_s=_PERIOD_S,
    )


def _add_queue_alarms(stack: Stack, settings: DeploymentSettings, topic: str) -> None:
    """Add the alarms of queues, and the function that looks at queues for them."""
    names, cloud = settings.names, settings.properties.cloud
    queues = all_queues(settings)
    grants = (
        Grant(("sqs:GetQueueAttributes",), (names.queue_arn(f"{names.prefix}*"),)),
        # GetMetricData has no resource.
        Grant(("cloudwatch:GetMetricData",), ("*",)),
        *([_count_tasks(settings)] if _watches_tasks(settings) else []),
    )
    watcher = FunctionSpec(
        name=WATCHER,
        handler="watch_queues",
        description="Looks for dead letters and for messages that wait",
        memory_mb=_WATCHER_MB,
        timeout_s=settings.properties.lambdas.trigger_timeout_s,
        grants=grants,
        environment={
            "SLEEPER_QUEUES_URL": names.queue_url("").removesuffix("/"),
            "SLEEPER_QUEUES": ",".join(each.queue for each in queues),
            "SLEEPER_DEAD_LETTERS": ",".join(each.dead for each in queues),
            "SLEEPER_ALARMS_NAMESPACE": namespace(settings),
            **({"SLEEPER_CLUSTER": names.named(CLUSTER)} if _watches_tasks(settings) else {}),
        },
    )
    add_function(stack, settings, watcher)
    minutes, age_s = cloud.look_minutes, cloud.alarm_minutes * 60
    add_schedule(stack, settings, f"{WATCHER}-rule", function=WATCHER, minutes=minutes, event={})
    for what, metric, threshold, description in (
        (
            "dead-letters",
            DEAD_LETTERS,
            1,
            "Jobs failed for good: `sleeper report dead-letters` shows them and why.",
        ),
        (
            "messages-wait",
            OLDEST,
            age_s,
            f"A message has waited for {age_s} seconds: look whether its queue is taken.",
        ),
    ):
        _add_alarm(
            stack,
            settings,
            topic,
            what,
            description,
            metric=(namespace(settings), metric),
            statistic="Maximum",
            threshold=threshold,
            period_s=_look_period_s(settings),
        )


def _look_period_s(settings: DeploymentSettings) -> int:
    """Return a time that has two looks, wherever it begins, so that an alarm does not end early."""
    return min(_DAY_S, settings.properties.cloud.look_minutes * 120 + 300)


def _watches_tasks(settings: DeploymentSettings) -> bool:
    return settings.has_tasks and settings.properties.cloud.tasks_alarm is not None


def _count_tasks(settings: DeploymentSettings) -> Grant:
    # ListTasks has no resource but container instances, which Fargate has none of.
    cluster = settings.names.arn("ecs", f"cluster/{settings.names.named(CLUSTER)}")
    return Grant(("ecs:ListTasks",), ("*",), {"ArnEquals": {"ecs:cluster": cluster}})


def _add_task_alarm(stack: Stack, settings: DeploymentSettings, topic: str, most: int) -> None:
    """Add the alarm of many workers at once, where a property says how many are many."""
    _add_alarm(
        stack,
        settings,
        topic,
        "tasks-running",
        f"More than {most} workers run on Fargate, and are paid by the second.",
        metric=(namespace(settings), TASKS),
        statistic="Maximum",
        threshold=most + 1,
        period_s=_look_period_s(settings),
    )


def _add_budget(stack: Stack, settings: DeploymentSettings, topic: str, dollars: int) -> None:
    """Add a budget of all that has the instance's tag. It tells of costs, and stops nothing."""
    names = settings.names
    told = (("ACTUAL", 80), ("ACTUAL", 100), ("FORECASTED", 100))
    budgets.CfnBudget(
        stack,
        "budget",
        budget=budgets.CfnBudget.BudgetDataProperty(
            budget_name=names.named("budget"),
            budget_type="COST",
            time_unit="MONTHLY",
            budget_limit=budgets.CfnBudget.SpendProperty(amount=dollars, unit="USD"),
            cost_filters={"TagKeyValue": [f"user:{OWNER_TAG}${owner_tag_value(names.url)}"]},
        ),
        notifications_with_subscribers=[
            budgets.CfnBudget.NotificationWithSubscribersProperty(
                notification=budgets.CfnBudget.NotificationProperty(
                    notification_type=kind,
                    comparison_operator="GREATER_THAN",
                    threshold=percent,
                    threshold_type="PERCENTAGE",
                ),
                subscribers=[
                    budgets.CfnBudget.SubscriberProperty(subscription_type="SNS", address=topic)
                ],
            )
            for kind, percent in told
        ],
    )


def _add_task_rule(stack: Stack, settings: DeploymentSettings) -> None:
    """Send a message for each worker on Fargate that did not start or ended with an error.

    One that AWS or a person stopped is none: its job is run again.
    """
    names = settings.names
    add_failure_rule(
        stack,
        settings,
        "tasks-failed",
        pattern={
            "source": ["aws.ecs"],
            "detail-type": ["ECS Task State Change"],
            "detail": {
                "clusterArn": [names.arn("ecs", f"cluster/{names.named(CLUSTER)}")],
                "lastStatus": ["STOPPED"],
                "$or": [
                    {"stopCode": ["TaskFailedToStart"]},
                    {
                        "stopCode": ["EssentialContainerExited"],
                        "containers": {"exitCode": [{"anything-but": [0]}]},
                    },
                ],
            },
        },
        text="task <task> of <family> ended: <reason>, exit code <code>",
        facts={
            "task": "$.detail.taskArn",
            "family": "$.detail.group",
            "reason": "$.detail.stoppedReason",
            "code": "$.detail.containers[0].exitCode",
        },
    )


def _add_emr_rule(stack: Stack, settings: DeploymentSettings) -> None:
    """Send a message for each cluster and step of the instance on EMR that failed."""
    names = settings.names
    add_failure_rule(
        stack,
        settings,
        f"{EMR.resource}-failed",
        pattern={
            "source": ["aws.emr"],
            "detail-type": ["EMR Cluster State Change", "EMR Step Status Change"],
            "detail": {
                "state": ["TERMINATED_WITH_ERRORS", "FAILED"],
                # Jobs are named by the id as it is written, what stacks make by the prefix.
                "name": [
                    {"prefix": each}
                    for each in dict.fromkeys((f"sleeper-{names.instance_id}-", names.prefix))
                ],
            },
        },
        text="<name> on cluster <cluster> is <state>",
        facts={
            "name": "$.detail.name",
            "cluster": "$.detail.clusterId",
            "state": "$.detail.state",
        },
    )


def _add_execution_rule(stack: Stack, settings: DeploymentSettings) -> None:
    """Send a message for each job on EKS whose driver could not start, which no tracker knows."""
    add_failure_rule(
        stack,
        settings,
        f"{EKS.resource}-failed",
        pattern={
            "source": ["aws.states"],
            "detail-type": ["Step Functions Execution Status Change"],
            "detail": {
                "stateMachineArn": [state_machine_arn(settings.names)],
                "status": ["FAILED", "TIMED_OUT"],
            },
        },
        text="execution <name> is <status>",
        facts={"name": "$.detail.name", "status": "$.detail.status"},
    )


def _add_alarm(
    stack: Stack,
    settings: DeploymentSettings,
    topic: str,
    what: str,
    description: str,
    *,
    metric: tuple[str, str],
    statistic: str,
    threshold: int,
    period_s: int,
) -> None:
    """Add an alarm, which sends to the topic. A metric without data is no reason for it.

    Args:
        stack: Where.
        settings: The settings of the deployment.
        topic: The ARN of the topic.
        what: Its name, after the instance's prefix.
        description: What it means.
        metric: The namespace and the name of what it looks at.
        statistic: What of the metric's values counts.
        threshold: From where on it is raised.
        period_s: Over how many seconds.
    """
    name = settings.names.named(what)
    cloudwatch.CfnAlarm(
        stack,
        name,
        alarm_name=name,
        alarm_description=description,
        namespace=metric[0],
        metric_name=metric[1],
        statistic=statistic,
        threshold=threshold,
        period=period_s,
        comparison_operator="GreaterThanOrEqualToThreshold",
        evaluation_periods=1,
        treat_missing_data="notBreaching",
        alarm_actions=[topic],
    )


def _add_topic(stack: Stack, settings: DeploymentSettings) -> str:
    """Add the topic, unless the user has one, and the subscription of the email; return its ARN."""
    cloud = settings.properties.cloud
    topic = cloud.alarms_topic or _add_own_topic(stack, settings)
    if cloud.errors_email is not None:
        sns.CfnSubscription(
            stack,
            "subscription",
            topic_arn=topic,
            protocol="email",
            endpoint=cloud.errors_email,
        )
    return topic


def _add_own_topic(stack: Stack, settings: DeploymentSettings) -> str:
    """Add the topic of alarms and rules; return its ARN.

    It is encrypted by the user's key, if there is one: alarms cannot use Amazon's own. A message
    says the name of an alarm, or which task or job run failed, and no data.
    """
    names = settings.names
    topic = sns.CfnTopic(
        stack,
        "topic",
        topic_name=names.named(TOPIC),
        display_name=f"Sleeper {names.instance_id}",
        kms_master_key_id=settings.properties.cloud.key_arn,
    )
    publish = {"Action": "sns:Publish", "Resource": topic.ref}
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
                    **publish,
                    "Condition": {"StringEquals": {"aws:SourceAccount": names.account}},
                },
                {
                    "Effect": "Allow",
                    "Principal": {"Service": "events.amazonaws.com"},
                    **publish,
                    "Condition": {
                        "ArnLike": {"aws:SourceArn": names.arn("events", f"rule/{names.prefix}*")}
                    },
                },
                *_from_budgets(settings, publish),
                {
                    "Effect": "Deny",
                    "Principal": "*",
                    **publish,
                    "Condition": {"Bool": {"aws:SecureTransport": "false"}},
                },
            ],
        },
    )
    return str(topic.ref)


def _from_budgets(settings: DeploymentSettings, publish: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the statement by which a budget may publish, if there is one."""
    if settings.properties.cloud.budget_dollars is None:
        return []
    return [
        {
            "Effect": "Allow",
            "Principal": {"Service": "budgets.amazonaws.com"},
            **publish,
            "Condition": {"StringEquals": {"aws:SourceAccount": settings.names.account}},
        }
    ]


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


def add_dashboard_stack(scope: Construct, settings: DeploymentSettings) -> Stack:
    """Add DashboardStack: queues, dead letters, functions and tables, over time."""
    stack = new_stack(
        scope, settings, StackName.DASHBOARD, "a dashboard of queues, functions and tables"
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
