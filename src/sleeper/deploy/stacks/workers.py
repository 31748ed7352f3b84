"""The stack that all workers on Fargate share: their cluster, and the function that starts them."""

from __future__ import annotations

from collections.abc import Iterator

from aws_cdk import App, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecs as ecs

from sleeper.deploy import grants
from sleeper.deploy.grants import Grant
from sleeper.deploy.settings import DeploymentSettings
from sleeper.deploy.stacks.functions import FunctionSpec, add_function
from sleeper.deploy.stacks.new_stack import new_stack
from sleeper.deploy.stacks.tasks import EXECUTION, STARTER, TASK, TASK_KINDS, task_family
from sleeper.model.jobs.messages import QueueName


def add_workers_stack(app: App, settings: DeploymentSettings) -> Stack:
    """Add WorkersStack. No task runs before there is something to do."""
    stack = new_stack(
        app, settings, "WorkersStack", "starts workers on Fargate while they are needed"
    )
    names, properties = settings.names, settings.properties
    cluster = ecs.CfnCluster(
        stack,
        "cluster",
        cluster_name=names.named("workers"),
        capacity_providers=["FARGATE", "FARGATE_SPOT"],
        cluster_settings=[
            ecs.CfnCluster.ClusterSettingsProperty(name="containerInsights", value="disabled")
        ],
    )
    group = ec2.CfnSecurityGroup(
        stack,
        "security-group",
        group_name=names.named("workers"),
        group_description="Workers of Sleeper: nothing connects to them, they connect by HTTPS",
        vpc_id=properties.cloud.vpc,
        security_group_egress=[
            ec2.CfnSecurityGroup.EgressProperty(
                ip_protocol="tcp",
                from_port=443,
                to_port=443,
                description="HTTPS to AWS",
                **where,
            )
            for where in ({"cidr_ip": "0.0.0.0/0"}, {"cidr_ipv6": "::/0"})
        ],
    )
    starter = FunctionSpec(
        name=STARTER,
        handler="start_workers",
        description="Starts workers for what waits",
        memory_mb=properties.lambdas.starter_memory_mb,
        timeout_s=properties.lambdas.starter_timeout_s,
        grants=(*_grants(settings),),
        environment={
            "SLEEPER_CLUSTER": cluster.ref,
            "SLEEPER_SUBNETS": ",".join(settings.subnets),
            "SLEEPER_SECURITY_GROUP": group.attr_group_id,
            "SLEEPER_CAPACITY": "FARGATE_SPOT,FARGATE" if properties.tasks.spot else "FARGATE",
            "SLEEPER_PUBLIC_IP": "ENABLED" if properties.tasks.public_ip else "DISABLED",
            **{f"SLEEPER_TASK_{kind.upper()}": task_family(names, kind) for kind in TASK_KINDS},
            "SLEEPER_WORKERS_MAX_INGEST": str(properties.ingest_queue.workers_max),
            "SLEEPER_WORKERS_MAX_COMPACTION": str(properties.compaction_workers.workers_max),
            "SLEEPER_WORKERS_MAX_EXPORT": str(properties.export_queue.workers_max),
        },
        reserved=1,  # two at once would start twice as many
    )
    add_function(stack, settings, starter)
    return stack


def _grants(settings: DeploymentSettings) -> Iterator[Grant]:
    """Yield what the starter may do: look at what waits, count tasks and start some."""
    names = settings.names
    cluster = names.arn("ecs", f"cluster/{names.named('workers')}")
    tasks = names.arn("ecs", f"task/{names.named('workers')}/*")
    here = {"ArnEquals": {"ecs:cluster": cluster}}
    families = [task_family(names, kind) for kind in TASK_KINDS]
    roles = [names.role_arn(f"{kind}-{role}") for kind in TASK_KINDS for role in (TASK, EXECUTION)]
    yield from grants.look_for_work(names)
    yield from grants.look_at(names, QueueName.INGEST, QueueName.EXPORT)
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
