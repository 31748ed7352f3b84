"""Workers on Fargate: tasks that run `sleeper worker` until there is nothing to do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from aws_cdk import Stack
from aws_cdk import aws_ecs as ecs

from sleeper.deploy.grants import Grant
from sleeper.deploy.names import DeployedNames
from sleeper.deploy.settings import DeploymentSettings
from sleeper.deploy.stacks.logs import add_logs, write_logs
from sleeper.deploy.stacks.roles import add_role
from sleeper.deploy.stacks.schedules import add_schedule

TASK_KINDS: Final = ("ingest", "compaction", "export")
"""The kinds of workers that run on Fargate."""

STARTER: Final = "worker-starter"
"""The function that starts them."""

TASK: Final = "task"
"""The end of the name of the role that a worker has."""

EXECUTION: Final = "execution"
"""The end of the name of the role by which Fargate starts a worker."""

_IDLE_S: Final = 60
_STOP_S: Final = 120
"""How long a worker may take to give back its job: as long as Fargate allows."""


def task_family(names: DeployedNames, kind: str) -> str:
    """Return the name of the task definition of a kind of workers."""
    return names.named(kind)


def add_workers(
    stack: Stack,
    settings: DeploymentSettings,
    kind: str,
    grants: Iterable[Grant],
    *,
    minutes: int,
) -> None:
    """Add a kind of workers, and have the starter look every so many minutes whether to start some.

    Args:
        stack: Where.
        settings: The settings of the deployment.
        kind: One of `TASK_KINDS`.
        grants: What a worker may do.
        minutes: How often to look.
    """
    names, size = settings.names, settings.task_size(kind)
    logs = add_logs(stack, settings, kind)
    task = add_role(stack, names.named(f"{kind}-{TASK}"), "ecs-tasks", grants)
    execution = add_role(
        stack,
        names.named(f"{kind}-{EXECUTION}"),
        "ecs-tasks",
        (*_pull_image(settings), write_logs(logs)),
    )
    ecs.CfnTaskDefinition(
        stack,
        kind,
        family=task_family(names, kind),
        requires_compatibilities=["FARGATE"],
        network_mode="awsvpc",
        cpu=str(size.cpu),
        memory=str(size.memory_mb),
        runtime_platform=ecs.CfnTaskDefinition.RuntimePlatformProperty(
            cpu_architecture=size.architecture, operating_system_family="LINUX"
        ),
        task_role_arn=task.role_arn,
        execution_role_arn=execution.role_arn,
        container_definitions=[_container(settings, kind, logs.ref)],
    )
    event = {"kinds": [kind]}
    add_schedule(stack, settings, f"{kind}-rule", function=STARTER, minutes=minutes, event=event)


def _container(
    settings: DeploymentSettings, kind: str, log_group: str
) -> ecs.CfnTaskDefinition.ContainerDefinitionProperty:
    worker = ["worker", kind, "--until-empty", "--idle", str(_IDLE_S)]
    return ecs.CfnTaskDefinition.ContainerDefinitionProperty(
        name="worker",
        image=settings.image("worker"),
        essential=True,
        entry_point=["sleeper"],
        command=["--log-format", "json", *worker, "--instance", settings.names.url],
        environment=[
            ecs.CfnTaskDefinition.KeyValuePairProperty(
                name="AWS_REGION", value=settings.names.region
            )
        ],
        stop_timeout=_STOP_S,
        log_configuration=ecs.CfnTaskDefinition.LogConfigurationProperty(
            log_driver="awslogs",
            options={
                "awslogs-group": log_group,
                "awslogs-region": settings.names.region,
                "awslogs-stream-prefix": kind,
            },
        ),
    )


def _pull_image(settings: DeploymentSettings) -> tuple[Grant, ...]:
    actions = ("BatchCheckLayerAvailability", "BatchGetImage", "GetDownloadUrlForLayer")
    repository = settings.names.arn("ecr", f"repository/{settings.repository('worker')}")
    return (
        # A token is for all repositories that other statements name.
        Grant(("ecr:GetAuthorizationToken",), ("*",)),
        Grant(tuple(f"ecr:{action}" for action in actions), (repository,)),
    )
