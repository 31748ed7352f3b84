"""The stack of alarms: dead letters, messages that wait for long, functions that fail."""

from __future__ import annotations

from typing import Any

from aws_cdk import App, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_sns as sns

from sleeper.deploy.platforms import EKS, state_machine_arn
from sleeper.deploy.settings import DeploymentSettings
from sleeper.deploy.stacks.new_stack import new_stack
from sleeper.deploy.stacks.watched import scheduled_functions, watched_queues
from sleeper.storage.aws.jobs.sqs_names import SqsNames

_PERIOD_S = 300


def add_alarms_stack(app: App, settings: DeploymentSettings) -> Stack:
    """Add AlarmsStack. Each alarm is sent to a topic, and by it to `sleeper.errors.email`."""
    stack = new_stack(app, settings, "AlarmsStack", "alarms of dead letters, delays and failures")
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
    if settings.has("EksBulkImportStack"):
        _add_execution_alarm(stack, settings, topic)
    return stack


def _add_execution_alarm(stack: Stack, settings: DeploymentSettings, topic: str) -> None:
    """Add the alarm of jobs on EKS whose driver could not start, which no tracker knows."""
    name = f"{settings.names.named(EKS)}-failed"
    cloudwatch.CfnAlarm(
        stack,
        name,
        alarm_name=name,
        alarm_description=f"Runs of {settings.names.named(EKS)} failed: look at the causes.",
        namespace="AWS/States",
        metric_name="ExecutionsFailed",
        dimensions=_dimension("StateMachineArn", state_machine_arn(settings.names)),
        statistic="Sum",
        threshold=1,
        **_how(topic),
    )


def _add_queue_alarms(stack: Stack, queue: SqsNames, topic: str, age_s: int) -> None:
    for name, of, metric, threshold, told in (
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
            alarm_description=told,
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
