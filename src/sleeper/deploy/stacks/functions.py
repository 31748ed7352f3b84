"""Lambda functions, which run handlers of `sleeper.interfaces.lambdas` in the worker's image."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from aws_cdk import RemovalPolicy, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as functions
from aws_cdk import aws_logs as logs

from sleeper.deploy.grants import Grant
from sleeper.deploy.settings import DeploymentSettings

# ---------------------------------------------------------------- roles
#
# Roles and policies of IAM, made from grants.


def statement(grant: Grant) -> iam.PolicyStatement:
    """Return the statement of a policy that says what a grant says."""
    return iam.PolicyStatement(
        actions=list(grant.actions),
        resources=list(grant.resources),
        conditions=None if grant.conditions is None else dict(grant.conditions),
    )


def add_role(stack: Stack, name: str, service: str, grants: Iterable[Grant]) -> iam.Role:
    """Add a role that a service of AWS takes.

    Args:
        stack: Where.
        name: Its name.
        service: The service, such as `lambda`.
        grants: What it may do.
    """
    return iam.Role(
        stack,
        f"{name}-role",
        role_name=name,
        assumed_by=iam.ServicePrincipal(f"{service}.amazonaws.com"),
        inline_policies={"access": iam.PolicyDocument(statements=[*map(statement, grants)])},
    )


def add_policy(stack: Stack, name: str, description: str, grants: Iterable[Grant]) -> None:
    """Add a policy that a user can attach to roles.

    Args:
        stack: Where.
        name: Its name.
        description: Whom it is for.
        grants: What it allows.
    """
    iam.ManagedPolicy(
        stack,
        f"{name}-policy",
        managed_policy_name=name,
        description=description,
        statements=[*map(statement, grants)],
    )


# ---------------------------------------------------------------- logs
#
# Groups of logs.


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


_HANDLERS: Final = "sleeper.interfaces.lambdas.handlers"
_ENTRY_POINT: Final = ("python", "-m", "awslambdaric")


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSpec:
    """A function to add.

    Attributes:
        name: Its name, after the instance's prefix; its role has the same.
        handler: The function in `sleeper.interfaces.lambdas.handlers` that it calls.
        description: What it does.
        memory_mb: Its memory.
        timeout_s: How long one call may take.
        grants: What it may do, but for writing logs.
        environment: Variables that it reads, but for SLEEPER_INSTANCE.
        reserved: Concurrency of the account that it has for itself; None for none.
    """

    name: str
    handler: str
    description: str
    memory_mb: int
    timeout_s: int
    grants: tuple[Grant, ...]
    environment: Mapping[str, str]
    reserved: int | None = None


def add_function(
    stack: Stack, settings: DeploymentSettings, spec: FunctionSpec
) -> functions.CfnFunction:
    """Add a function with its role and logs. It is in no VPC, and costs nothing while idle."""
    name = settings.names.function(spec.name)
    logs = add_logs(stack, settings, spec.name)
    role = add_role(stack, name, "lambda", [*spec.grants, write_logs(logs)])
    is_arm = settings.properties.lambdas.architecture == "ARM64"
    return functions.CfnFunction(
        stack,
        spec.name,
        function_name=name,
        description=spec.description,
        package_type="Image",
        code=functions.CfnFunction.CodeProperty(image_uri=settings.image("worker")),
        image_config=functions.CfnFunction.ImageConfigProperty(
            entry_point=list(_ENTRY_POINT), command=[f"{_HANDLERS}.{spec.handler}"]
        ),
        architectures=["arm64" if is_arm else "x86_64"],
        memory_size=spec.memory_mb,
        timeout=spec.timeout_s,
        role=role.role_arn,
        reserved_concurrent_executions=spec.reserved,
        environment=functions.CfnFunction.EnvironmentProperty(
            variables={"SLEEPER_INSTANCE": settings.names.url, **spec.environment}
        ),
        logging_config=functions.CfnFunction.LoggingConfigProperty(log_group=logs.ref),
    )


def add_queue_source(
    stack: Stack,
    function: functions.CfnFunction,
    queue_arn: str,
    *,
    batch: int = 1,
    at_once: int | None = None,
) -> None:
    """Have a function called with the messages of a queue. It says which of them failed.

    Args:
        stack: Where.
        function: The function.
        queue_arn: The ARN of the queue, whose messages are hidden for at least as long as a call
            may take.
        batch: Messages in one call, at most.
        at_once: Calls at once, at most; None for as many as the account has.
    """
    functions.CfnEventSourceMapping(
        stack,
        f"{function.node.id}-messages",
        event_source_arn=queue_arn,
        function_name=function.ref,
        batch_size=batch,
        function_response_types=["ReportBatchItemFailures"],
        scaling_config=None
        if at_once is None
        else functions.CfnEventSourceMapping.ScalingConfigProperty(maximum_concurrency=at_once),
    )


# ---------------------------------------------------------------- schedules
#
# Schedules, which call functions every so often.


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
