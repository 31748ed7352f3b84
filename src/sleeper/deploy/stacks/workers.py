"""Workers on Fargate: tasks that run `sleeper worker` until there is nothing to do.

All kinds share a stack with their cluster, and the function that starts them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from aws_cdk import Stack
from aws_cdk import aws_ecs as ecs
from constructs import Construct

from sleeper.deploy import grants
from sleeper.deploy.grants import Grant
from sleeper.deploy.image_addresses import EcrAddress
from sleeper.deploy.names import DeployedNames
from sleeper.deploy.settings import DeploymentSettings
from sleeper.deploy.stacks.network import add_closed_group
from sleeper.deploy.stacks.parts import (
    FunctionSpec,
    add_function,
    add_logs,
    add_role,
    add_schedule,
    new_stack,
    write_logs,
)
from sleeper.model.jobs.kinds import TASK_KINDS, KindSpec
from sleeper.model.jobs.settings import task_period_minutes, task_size, workers_max
from sleeper.model.stacks import StackName

STARTER: Final = "worker-starter"
"""The function that starts them."""

CLUSTER: Final = "workers"
"""The end of the name of their cluster."""

TASK: Final = "task"
"""The end of the name of the role that a worker has."""

EXECUTION: Final = "execution"
"""The end of the name of the role by which Fargate starts a worker."""

_IDLE_S: Final = 60
_LOOK_MINUTES: Final = 1
_STOP_S: Final = 120
"""How long a worker may take to give back its job: as long as Fargate allows."""


def task_family(names: DeployedNames, kind: KindSpec) -> str:
    """Return the name of the task definition of a kind of workers."""
    return names.named(kind.name)


def add_workers(
    stack: Stack, settings: DeploymentSettings, kind: KindSpec, grants: Iterable[Grant]
) -> None:
    """Add a kind of workers, which the starter of WorkersStack starts.

    Args:
        stack: Where.
        settings: The settings of the deployment.
        kind: One of `TASK_KINDS`.
        grants: What a worker may do.
    """
    assert kind.task is not None, "its workers run on Fargate"
    names, properties, name = settings.names, settings.properties, kind.name
    size = task_size(properties, kind.task)
    logs = add_logs(stack, settings, name)
    task = add_role(stack, names.named(f"{name}-{TASK}"), "ecs-tasks", grants)
    execution = add_role(
        stack,
        names.named(f"{name}-{EXECUTION}"),
        "ecs-tasks",
        (*_pull_image(settings), write_logs(logs)),
    )
    ecs.CfnTaskDefinition(
        stack,
        name,
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
        container_definitions=[_container(settings, name, logs.ref)],
    )


def _container(
    settings: DeploymentSettings, kind: str, log_group: str
) -> ecs.CfnTaskDefinition.ContainerDefinitionProperty:
    worker = ["worker", kind, "--until-empty", "--idle", str(_IDLE_S)]
    return ecs.CfnTaskDefinition.ContainerDefinitionProperty(
        name="worker",
        image=settings.task_image,
        essential=True,
        entry_point=["sleeper"],
        command=["--log-format", "json", *worker, "--instance", settings.names.url],
        environment=[
            ecs.CfnTaskDefinition.KeyValuePairProperty(
                name="AWS_REGION", value=settings.names.region
            )
        ],
        stop_timeout=_STOP_S,
        # Something reaps processes whose parent has ended.
        linux_parameters=ecs.CfnTaskDefinition.LinuxParametersProperty(init_process_enabled=True),
        log_configuration=ecs.CfnTaskDefinition.LogConfigurationProperty(
            log_driver="awslogs",
            options={
                "awslogs-group": log_group,
                "awslogs-region": settings.names.region,
                "awslogs-stream-prefix": kind,
            },
        ),
    )


def _disks(key: str | None) -> ecs.CfnCluster.ClusterConfigurationProperty | None:
    """Return by which key disks of tasks are encrypted; None for Amazon's own."""
    if key is None:
        return None
    storage = ecs.CfnCluster.ManagedStorageConfigurationProperty(
        fargate_ephemeral_storage_kms_key_id=key
    )
    return ecs.CfnCluster.ClusterConfigurationProperty(managed_storage_configuration=storage)


def _pull_image(settings: DeploymentSettings) -> tuple[Grant, ...]:
    address = EcrAddress.of(settings.task_image)
    if address is None:
        return ()  # whoever may read that registry needs no role for it
    actions = ("BatchCheckLayerAvailability", "BatchGetImage", "GetDownloadUrlForLayer")
    repository = address.repository_arn(settings.names.partition)
    return (
        # A token is for all repositories that other statements name.
        Grant(("ecr:GetAuthorizationToken",), ("*",)),
        Grant(tuple(f"ecr:{action}" for action in actions), (repository,)),
    )


def add_workers_stack(scope: Construct, settings: DeploymentSettings) -> Stack:
    """Add WorkersStack: what looks for work each minute, and the cluster of workers on Fargate.

    No task runs before there is something to do. Without a kind of workers there is no cluster.
    """
    stack = new_stack(
        scope, settings, StackName.WORKERS, "starts workers and functions while they are needed"
    )
    lambdas = settings.properties.lambdas
    starter = FunctionSpec(
        name=STARTER,
        handler="start_workers",
        description="Starts workers and functions for what waits",
        memory_mb=lambdas.starter_memory_mb,
        timeout_s=lambdas.starter_timeout_s,
        grants=(*_grants(settings),),
        environment=_add_cluster(stack, settings) if settings.has_tasks else {},
        reserved=1,  # two at once would start twice as many
    )
    add_function(stack, settings, starter)
    _add_schedules(stack, settings)
    return stack


def _add_cluster(stack: Stack, settings: DeploymentSettings) -> dict[str, str]:
    """Add the cluster of workers; return the variables by which the starter finds it."""
    names, properties = settings.names, settings.properties
    cluster = ecs.CfnCluster(
        stack,
        "cluster",
        cluster_name=names.named(CLUSTER),
        capacity_providers=["FARGATE", "FARGATE_SPOT"],
        configuration=_disks(properties.cloud.key_arn),
        cluster_settings=[
            ecs.CfnCluster.ClusterSettingsProperty(name="containerInsights", value="disabled")
        ],
    )
    group = add_closed_group(stack, settings, "security-group", CLUSTER, "Workers of Sleeper")
    return {
        "SLEEPER_CLUSTER": cluster.ref,
        "SLEEPER_SUBNETS": ",".join(settings.subnets),
        "SLEEPER_SECURITY_GROUP": group.attr_group_id,
        "SLEEPER_CAPACITY": "FARGATE_SPOT,FARGATE" if properties.tasks.spot else "FARGATE",
        "SLEEPER_PUBLIC_IP": "ENABLED" if properties.tasks.public_ip else "DISABLED",
        **{each.variable("SLEEPER_TASK"): task_family(names, each) for each in TASK_KINDS},
        **{
            each.variable("SLEEPER_WORKERS_MAX"): str(workers_max(properties, each))
            for each in TASK_KINDS
        },
    }


def _add_schedules(stack: Stack, settings: DeploymentSettings) -> None:
    """Have the starter called for the kinds of workers and the queues that it looks at together.

    A call for two kinds costs hardly more than one for one. Queues of functions are looked at each
    minute, whatever the kinds of workers want.
    """
    functions = settings.called_functions
    by_minutes: dict[int, list[str]] = {_LOOK_MINUTES: []}
    for kind in TASK_KINDS:
        if kind.task is not None and kind.stack in settings.stacks:
            minutes = task_period_minutes(settings.properties, kind.task)
            by_minutes.setdefault(minutes, []).append(kind.name)
    for minutes, kinds in by_minutes.items():
        add_schedule(
            stack,
            settings,
            f"{CLUSTER}-{minutes}-rule",
            function=STARTER,
            minutes=minutes,
            event={
                "kinds": kinds,
                **({"functions": functions} if minutes == _LOOK_MINUTES else {}),
            },
        )


def _grants(settings: DeploymentSettings) -> Iterator[Grant]:
    """Yield what the starter may do: look at what waits, call functions, start tasks."""
    names, called = settings.names, settings.called_functions
    of_workers = [name for kind in TASK_KINDS for name in kind.queue_names]
    tasks = settings.has_tasks
    yield from grants.look_for_work(names) if tasks else grants.open_instance(names)
    yield from grants.look_at(names, *(of_workers if tasks else ()), *called)
    yield grants.call(names, *called.values())
    if tasks:
        yield from _start_tasks(names)


def _start_tasks(names: DeployedNames) -> Iterator[Grant]:
    """Yield what starts tasks, and counts them."""
    cluster = names.arn("ecs", f"cluster/{names.named(CLUSTER)}")
    tasks = names.arn("ecs", f"task/{names.named(CLUSTER)}/*")
    here = {"ArnEquals": {"ecs:cluster": cluster}}
    families = [task_family(names, kind) for kind in TASK_KINDS]
    roles = [
        names.role_arn(f"{kind.name}-{role}") for kind in TASK_KINDS for role in (TASK, EXECUTION)
    ]
    yield Grant(
        ("ecs:RunTask",),
        tuple(names.arn("ecs", f"task-definition/{family}:*") for family in families),
        here,
    )
    # ListTasks has no resource but container instances, which Fargate has none of.
    yield Grant(("ecs:ListTasks",), ("*",), here)
    yield Grant(("ecs:DescribeTasks",), (tasks,), here)
    yield Grant(("ecs:TagResource",), (tasks,), {"StringEquals": {"ecs:CreateAction": "RunTask"}})
    yield Grant(
        ("iam:PassRole",),
        tuple(roles),
        {"StringEquals": {"iam:PassedToService": "ecs-tasks.amazonaws.com"}},
    )
