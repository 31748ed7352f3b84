"""How failures of a deployment reach its topic without costing anything while nothing fails.

- A rule of EventBridge sends an event of AWS (a task, a job run that failed) to the topic.
- A filter of a function's log counts its errors. All functions count into one metric, which has
  data, and so costs something, only while there are errors: one alarm is enough for all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from aws_cdk import Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_logs as logs

from sleeper.deploy.settings import DeploymentSettings

TOPIC: Final = "alarms"
"""The end of the name of the topic."""

ERRORS: Final = "FunctionErrors"
"""The metric of errors of all functions."""

_SIGNS: Final = (
    "[ERROR]",  # an exception of the handler, an import that failed, and what is logged as an error
    "Task timed out",
    "Runtime exited",  # killed, or out of memory
    "Runtime.InvalidEntrypoint",
)
"""Each failed call of a function has one of them in its log."""


def topic_arn(settings: DeploymentSettings) -> str:
    """Return the ARN of the topic that hears of failures: the user's own, or the instance's."""
    names = settings.names
    return settings.properties.cloud.alarms_topic or names.arn("sns", names.named(TOPIC))


def namespace(settings: DeploymentSettings) -> str:
    """Return the namespace of metrics that alarms of the instance look at."""
    return f"{settings.properties.cloud.metrics_namespace}/{settings.names.instance_id}"


def count_errors(
    stack: Stack, settings: DeploymentSettings, name: str, group: logs.CfnLogGroup
) -> None:
    """Count the errors in a function's log.

    Args:
        stack: Where.
        settings: The settings of the deployment.
        name: The function's name, after the instance's prefix.
        group: The group of its logs.
    """
    logs.CfnMetricFilter(
        stack,
        f"{name}-errors",
        log_group_name=group.ref,
        filter_pattern=" ".join(f'?"{each}"' for each in _SIGNS),
        metric_transformations=[
            logs.CfnMetricFilter.MetricTransformationProperty(
                metric_namespace=namespace(settings), metric_name=ERRORS, metric_value="1"
            )
        ],
    )


def add_failure_rule(
    stack: Stack,
    settings: DeploymentSettings,
    name: str,
    *,
    pattern: Mapping[str, Any],
    text: str,
    facts: Mapping[str, str],
) -> None:
    """Send a message to the topic for each event of a failure. The rule costs nothing.

    Args:
        stack: Where.
        settings: The settings of the deployment.
        name: The rule's name, after the instance's prefix.
        pattern: Which events.
        text: What is sent: `<fact>` stands for what the event has at its path.
        facts: The paths of facts in the event, by name.
    """
    rule = settings.names.named(name)
    events.CfnRule(
        stack,
        name,
        name=rule,
        description="Sends a message to the topic of alarms for each failure",
        event_pattern=pattern,
        state="ENABLED",
        targets=[
            events.CfnRule.TargetProperty(
                arn=topic_arn(settings),
                id="topic",
                input_transformer=events.CfnRule.InputTransformerProperty(
                    input_paths_map=dict(facts), input_template=json.dumps(f"{rule}: {text}")
                ),
            )
        ],
    )
