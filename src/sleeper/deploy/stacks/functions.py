"""Lambda functions, which run handlers of `sleeper.interfaces.lambdas` in the worker's image."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aws_cdk import Stack
from aws_cdk import aws_lambda as functions

from sleeper.deploy.grants import Grant
from sleeper.deploy.settings import DeploymentSettings
from sleeper.deploy.stacks.logs import add_logs, write_logs
from sleeper.deploy.stacks.roles import add_role
from sleeper.language.value_classes import dataclass

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
