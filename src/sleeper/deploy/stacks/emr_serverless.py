"""EmrServerlessBulkImportStack: an application that starts with a job, and stops when idle."""

from __future__ import annotations

from typing import Any, Final

from aws_cdk import App, Stack
from aws_cdk import aws_emrserverless as serverless

from sleeper.deploy.grants import Grant
from sleeper.deploy.platforms import SERVERLESS
from sleeper.deploy.settings import DeploymentSettings
from sleeper.deploy.stacks.job_access import add_starter, job_grants, pass_roles
from sleeper.deploy.stacks.new_stack import new_stack
from sleeper.deploy.stacks.roles import add_role
from sleeper.model.jobs.messages import QueueName
from sleeper.model.known_properties.clusters import ClusterProperties

_SERVICE: Final = "emr-serverless"


def add_serverless_stack(app: App, settings: DeploymentSettings) -> Stack:
    """Add the stack. By default nothing runs, and costs, while there is no job."""
    kind = "EmrServerlessBulkImportStack"
    stack = new_stack(app, settings, kind, "bulk imports on EMR Serverless")
    clusters, names = settings.properties.clusters, settings.names
    application = serverless.CfnApplication(
        stack,
        "application",
        name=names.named(SERVERLESS),
        type="SPARK",
        release_label=clusters.serverless_release,
        architecture=clusters.serverless_architecture,
        auto_start_configuration=serverless.CfnApplication.AutoStartConfigurationProperty(
            enabled=clusters.serverless_autostart
        ),
        auto_stop_configuration=serverless.CfnApplication.AutoStopConfigurationProperty(
            enabled=clusters.serverless_autostop,
            idle_timeout_minutes=clusters.serverless_idle_minutes,
        ),
        initial_capacity=_initial_capacity(clusters),
    )
    add_role(stack, names.named(SERVERLESS), _SERVICE, job_grants(settings))
    runs = Grant((f"{_SERVICE}:StartJobRun",), (application.attr_arn,))
    add_starter(
        stack,
        settings,
        f"{SERVERLESS}-starter",
        QueueName.BULK_IMPORT_EMR_SERVERLESS,
        (runs, pass_roles(settings, SERVERLESS, service=_SERVICE)),
    )
    return stack


def _initial_capacity(clusters: ClusterProperties) -> list[Any] | None:
    """Workers that are ready, and paid for, while the application is started; none by default."""
    if not clusters.serverless_is_ready:
        return None
    sizes = {
        "DRIVER": (
            clusters.serverless_ready_drivers,
            clusters.serverless_ready_driver_cores,
            clusters.serverless_ready_driver_memory,
            clusters.serverless_ready_driver_disk,
        ),
        "EXECUTOR": (
            clusters.serverless_ready_executors,
            clusters.serverless_ready_executor_cores,
            clusters.serverless_ready_executor_memory,
            clusters.serverless_ready_executor_disk,
        ),
    }
    return [
        serverless.CfnApplication.InitialCapacityConfigKeyValuePairProperty(
            key=role,
            value=serverless.CfnApplication.InitialCapacityConfigProperty(
                worker_count=count,
                worker_configuration=serverless.CfnApplication.WorkerConfigurationProperty(
                    cpu=cores, memory=memory, disk=disk
                ),
            ),
        )
        for role, (count, cores, memory, disk) in sizes.items()
    ]
