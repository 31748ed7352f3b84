"""Groups of logs."""

from __future__ import annotations

from aws_cdk import RemovalPolicy, Stack
from aws_cdk import aws_logs as logs

from sleeper.deploy.grants import Grant
from sleeper.deploy.settings import DeploymentSettings


def add_logs(stack: Stack, settings: DeploymentSettings, what: str) -> logs.CfnLogGroup:
    """Add a group of logs; CloudFormation names it after the stack and `what`.

    It has no fixed name, so that one that stayed when its stack was deleted is not in the way.
    """
    cloud = settings.properties.cloud
    group = logs.CfnLogGroup(
        stack,
        f"{what}-logs",
        retention_in_days=None if cloud.log_days < 0 else cloud.log_days,
    )
    group.apply_removal_policy(
        RemovalPolicy.RETAIN if cloud.retains_logs else RemovalPolicy.DESTROY
    )
    return group


def write_logs(group: logs.CfnLogGroup) -> Grant:
    """Allow to write to a group of logs."""
    return Grant(("logs:CreateLogStream", "logs:PutLogEvents"), (group.attr_arn,))
