"""EmrBulkImportStack, for clusters of one job, and PersistentEmrBulkImportStack, of one kept."""

from __future__ import annotations

from typing import Any, Final

from aws_cdk import App, CfnTag, Stack
from aws_cdk import aws_emr as emr

from sleeper.deploy.grants import Grant
from sleeper.deploy.platforms import EMR, PERSISTENT, machine_role, service_role
from sleeper.deploy.settings import DeploymentSettings
from sleeper.deploy.stacks.emr_access import add_emr_access
from sleeper.deploy.stacks.job_access import add_starter, pass_roles
from sleeper.deploy.stacks.new_stack import new_stack
from sleeper.model.jobs.messages import QueueName
from sleeper.spark.submit.emr.cluster import FOR_MANAGED_POLICIES
from sleeper.spark.submit.emr.machines import machine_types

_OWN: Final = "sleeper.bulk.import.persistent.emr."
_SHARED: Final = "sleeper.bulk.import.emr."
_SERVICE: Final = "elasticmapreduce"
_CORE_MAX: Final = 3  # machines that have HDFS, which scaling leaves alone; the rest are tasks'


def add_emr_stack(app: App, settings: DeploymentSettings) -> Stack:
    """Add EmrBulkImportStack: no cluster, but what is needed to make one for each job."""
    stack = new_stack(app, settings, "EmrBulkImportStack", "bulk imports on clusters of EMR")
    add_emr_access(stack, settings, EMR)
    tag, value = FOR_MANAGED_POLICIES.values()
    tagged = {"StringEquals": {f"{_SERVICE}:RequestTag/{tag}": value}}
    clusters = settings.names.arn(_SERVICE, "cluster/*")
    add_starter(
        stack,
        settings,
        f"{EMR}-starter",
        QueueName.BULK_IMPORT_EMR,
        (
            Grant((f"{_SERVICE}:RunJobFlow",), ("*",), tagged),
            Grant((f"{_SERVICE}:AddTags",), (clusters,), tagged),
            pass_roles(settings, service_role(EMR), service=_SERVICE),
            pass_roles(settings, machine_role(EMR), service="ec2"),
        ),
    )
    return stack


def add_persistent_emr_stack(app: App, settings: DeploymentSettings) -> Stack:
    """Add PersistentEmrBulkImportStack: a cluster that runs, and costs, all the time."""
    kind = "PersistentEmrBulkImportStack"
    stack = new_stack(app, settings, kind, "bulk imports on a cluster of EMR that is kept")
    add_emr_access(stack, settings, PERSISTENT)
    cluster = _add_cluster(stack, settings)
    for each in ("encryption", "profile"):
        cluster.add_dependency(stack.node.find_child(each))
    for each in (service_role(PERSISTENT), machine_role(PERSISTENT)):
        cluster.node.add_dependency(stack.node.find_child(f"{settings.names.named(each)}-role"))
    itself = settings.names.arn(_SERVICE, f"cluster/{cluster.ref}")
    add_starter(
        stack,
        settings,
        f"{PERSISTENT}-starter",
        QueueName.BULK_IMPORT_PERSISTENT_EMR,
        (
            Grant((f"{_SERVICE}:ListClusters",), ("*",)),
            Grant((f"{_SERVICE}:AddJobFlowSteps", f"{_SERVICE}:ListSteps"), (itself,)),
        ),
    )
    return stack


def _add_cluster(stack: Stack, settings: DeploymentSettings) -> emr.CfnCluster:
    names, clusters = settings.names, settings.properties.clusters
    return emr.CfnCluster(
        stack,
        "cluster",
        name=names.named(PERSISTENT),
        release_label=clusters.persistent_release,
        applications=[emr.CfnCluster.ApplicationProperty(name="Spark")],
        instances=_instances(settings),
        service_role=names.named(service_role(PERSISTENT)),
        job_flow_role=names.named(machine_role(PERSISTENT)),
        security_configuration=names.named(PERSISTENT),
        log_uri=f"s3://{names.buckets.bulk_import_bucket}/logs/",
        scale_down_behavior="TERMINATE_AT_TASK_COMPLETION",
        step_concurrency_level=clusters.persistent_steps,
        managed_scaling_policy=_scaling(settings) if clusters.persistent_scales else None,
        visible_to_all_users=True,
        tags=[CfnTag(key=FOR_MANAGED_POLICIES["Key"], value=FOR_MANAGED_POLICIES["Value"])],
    )


def _scaling(settings: DeploymentSettings) -> emr.CfnCluster.ManagedScalingPolicyProperty:
    clusters = settings.properties.clusters
    least, most = max(1, clusters.persistent_capacity_min), clusters.persistent_capacity_max
    return emr.CfnCluster.ManagedScalingPolicyProperty(
        compute_limits=emr.CfnCluster.ComputeLimitsProperty(
            unit_type="InstanceFleetUnits",
            minimum_capacity_units=least,
            maximum_capacity_units=most,
            maximum_core_capacity_units=max(least, min(_CORE_MAX, most)),
        )
    )


def _instances(settings: DeploymentSettings) -> emr.CfnCluster.JobFlowInstancesConfigProperty:
    group = settings.properties.text(f"{_SHARED}master.additional.security.group")
    return emr.CfnCluster.JobFlowInstancesConfigProperty(
        ec2_subnet_ids=list(settings.subnets),
        ec2_key_name=settings.properties.text(f"{_SHARED}keypair.name"),
        additional_master_security_groups=[group] if group else None,
        keep_job_flow_alive_when_no_steps=True,
        termination_protected=False,
        master_instance_fleet=_fleet(settings, "master", 1),
        core_instance_fleet=_fleet(
            settings, "executor", max(1, settings.properties.clusters.persistent_capacity_min)
        ),
    )


def _fleet(
    settings: DeploymentSettings, role: str, units: int
) -> emr.CfnCluster.InstanceFleetConfigProperty:
    def setting(name: str) -> str:
        return settings.properties.text(f"{_OWN}{name}") or ""

    is_executor = role == "executor"
    return emr.CfnCluster.InstanceFleetConfigProperty(
        name="Executors" if is_executor else "Driver",
        target_on_demand_capacity=units,
        instance_type_configs=[
            emr.CfnCluster.InstanceTypeConfigProperty(
                instance_type=each["InstanceType"],
                # Weights count executors; there is one master, whatever its size.
                weighted_capacity=each.get("WeightedCapacity") if is_executor else None,
                ebs_configuration=_disks(settings) if is_executor else None,
            )
            for each in machine_types(setting, role)
        ],
    )


def _disks(settings: DeploymentSettings) -> Any:
    def text(name: str) -> str:
        return settings.properties.text(f"{_SHARED}ebs.{name}") or ""

    return emr.CfnCluster.EbsConfigurationProperty(
        ebs_optimized=True,
        ebs_block_device_configs=[
            emr.CfnCluster.EbsBlockDeviceConfigProperty(
                volume_specification=emr.CfnCluster.VolumeSpecificationProperty(
                    size_in_gb=int(text("volume.size.gb")), volume_type=text("volume.type")
                ),
                volumes_per_instance=int(text("volumes.per.instance")),
            )
        ],
    )
