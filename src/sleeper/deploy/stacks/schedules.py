"""Schedules, which call functions every so often."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from aws_cdk import Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_lambda as functions

from sleeper.deploy.settings import DeploymentSettings


def add_schedule(
    stack: Stack,
    settings: DeploymentSettings,
    name: str,
    *,
    function: str,
    minutes: int,
    event: Mapping[str, Any],
) -> None:
    """Have a function called every so many minutes.

    Args:
        stack: Where.
        settings: The settings of the deployment.
        name: The schedule's name, after the instance's prefix.
        function: The function's name, after the instance's prefix; it may be in another stack.
        minutes: How often.
        event: What it is called with.
    """
    arn = settings.names.function_arn(function)
    rule = events.CfnRule(
        stack,
        name,
        name=settings.names.named(name),
        description=f"Calls {settings.names.function(function)}",
        schedule_expression=f"rate({minutes} minute{'' if minutes == 1 else 's'})",
        state="ENABLED",
        targets=[events.CfnRule.TargetProperty(arn=arn, id="function", input=json.dumps(event))],
    )
    permission = functions.CfnPermission(
        stack,
        f"{name}-permission",
        action="lambda:InvokeFunction",
        function_name=settings.names.function(function),
        principal="events.amazonaws.com",
        source_arn=rule.attr_arn,
    )
    here = stack.node.try_find_child(function)
    if here is not None:
        permission.node.add_dependency(here)
