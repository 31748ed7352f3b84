"""The stacks of EMR: clusters of one job, a cluster that is kept, and EMR Serverless."""

from __future__ import annotations

from typing import Any, Final

from aws_cdk import CfnTag, RemovalPolicy, Stack
from aws_cdk import aws_emr as emr
from aws_cdk import aws_emrserverless as serverless
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from sleeper.deploy.grants import Grant
from sleeper.deploy.platforms import APPLICATION_ID, machine_role, service_role
from sleeper.deploy.settings import DeploymentSettings
from sleeper.deploy.stacks.bulk_import import add_starter, job_grants, pass_roles
from sleeper.deploy.stacks.failures import add_failure_rule
from sleeper.deploy.stacks.network import add_closed_group
from sleeper.deploy.stacks.parts import add_role, new_stack
from sleeper.deploy.stacks.properties import add_properties
from sleeper.model.jobs.platforms import EMR, EMR_SERVERLESS, PERSISTENT_EMR, Platform
from sleeper.model.known_properties.clusters import ClusterProperties
from sleeper.spark.submit.emr import FOR_MANAGED_POLICIES, machine_types

# ---------------------------------------------------------------- emr access
#
# What clusters of EMR have in common: roles, and the encryption of disks.

_SERVICE: Final = "elasticmapreduce"
_FOR_DISKS: Final = (
    "kms:Decrypt",
    "kms:DescribeKey",
    "kms:Encrypt",
    "kms:GenerateDataKey",
    "kms:GenerateDataKeyWithoutPlaintext",
    "kms:ReEncryptFrom",
    "kms:ReEncryptTo",
)
_KEPT_DAYS: Final = 7
_EXTRA_GROUP: Final = "sleeper.bulk.import.emr.master.additional.security.group"


def add_emr_access(stack: Stack, settings: DeploymentSettings, platform: Platform) -> None:
    """Add the role of EMR, that of machines, and a security configuration.

    Args:
        stack: Where.
        settings: The settings of the deployment.
        platform: Whose they are.
    """
    names = settings.names
    given = settings.properties.clusters.ebs_key_arn or settings.properties.cloud.key_arn
    key = given or _add_key(stack, settings, platform)
    use_key = _use_for_disks(key)
    service = names.named(service_role(platform))
    role = add_role(stack, service, _SERVICE, [*_network_grants(settings, platform), *use_key])
    role.add_managed_policy(
        iam.ManagedPolicy.from_aws_managed_policy_name("service-role/AmazonEMRServicePolicy_v2")
    )
    machines = names.named(machine_role(platform))
    add_role(stack, machines, "ec2", [*job_grants(settings), *use_key])
    profile = iam.CfnInstanceProfile(
        stack, "profile", instance_profile_name=machines, roles=[machines]
    )
    profile.add_dependency(_resource(stack, f"{machines}-role"))
    emr.CfnSecurityConfiguration(
        stack,
        "encryption",
        name=names.named(platform.resource),
        security_configuration=_encryption(key),
    )


def _use_for_disks(key: str) -> tuple[Grant, ...]:
    """Allow to encrypt disks by a key, and to let services of AWS do so."""
    return (
        Grant(_FOR_DISKS, (key,)),
        Grant(("kms:CreateGrant",), (key,), {"Bool": {"kms:GrantIsForAWSResource": "true"}}),
    )


def _add_key(stack: Stack, settings: DeploymentSettings, platform: Platform) -> str:
    """Add a key; policies of IAM say who may use it."""
    account = f"arn:{settings.names.partition}:iam::{settings.names.account}:root"
    policy = iam.PolicyDocument(
        statements=[
            iam.PolicyStatement(
                actions=["kms:*"], resources=["*"], principals=[iam.ArnPrincipal(account)]
            )
        ]
    )
    key = kms.CfnKey(
        stack,
        "key",
        description=f"Disks of {settings.names.named(platform.resource)}",
        enable_key_rotation=True,
        pending_window_in_days=_KEPT_DAYS,
        key_policy=policy,
    )
    key.apply_removal_policy(RemovalPolicy.DESTROY)
    return str(key.attr_arn)


def _network_grants(settings: DeploymentSettings, platform: Platform) -> tuple[Grant, ...]:
    """Allow EMR to use a network that has not the tag that AWS's own policy asks for."""
    names = settings.names
    group = settings.properties.text(_EXTRA_GROUP)
    inside = [
        *(names.arn("ec2", f"subnet/{each}") for each in settings.subnets),
        *([names.arn("ec2", f"security-group/{group}")] if group else []),
    ]
    return (
        Grant(
            ("ec2:CreateSecurityGroup",),
            (names.arn("ec2", f"vpc/{settings.properties.cloud.vpc}"),),
        ),
        Grant(
            (
                "ec2:CreateFleet",
                "ec2:CreateLaunchTemplate",
                "ec2:CreateLaunchTemplateVersion",
                "ec2:CreateNetworkInterface",
                "ec2:RunInstances",
            ),
            tuple(inside),
        ),
        pass_roles(settings, machine_role(platform), service="ec2"),
    )


def _encryption(key: str) -> dict[str, Any]:
    """Disks are encrypted, and machines tell their role by tokens alone (IMDSv2)."""
    return {
        "EncryptionConfiguration": {
            "EnableInTransitEncryption": False,
            "EnableAtRestEncryption": True,
            "AtRestEncryptionConfiguration": {
                "LocalDiskEncryptionConfiguration": {
                    "EncryptionKeyProviderType": "AwsKms",
                    "AwsKmsKey": key,
                    "EnableEbsEncryption": True,
                }
            },
        },
        "InstanceMetadataServiceConfiguration": {
            "MinimumInstanceMetadataServiceVersion": 2,
            "HttpPutResponseHopLimit": 1,
        },
    }


def _resource(stack: Stack, name: str) -> Any:
    return stack.node.find_child(name).node.default_child


_CORE_MAX: Final = 3  # machines that have HDFS, which scaling leaves alone; the rest are tasks'


def add_emr_stack(scope: Construct, settings: DeploymentSettings) -> Stack:
    """Add EmrBulkImportStack: no cluster, but what is needed to make one for each job."""
    stack = new_stack(scope, settings, EMR.stack, "bulk imports on clusters of EMR")
    add_emr_access(stack, settings, EMR)
    tag, value = FOR_MANAGED_POLICIES.values()
    tagged = {"StringEquals": {f"{_SERVICE}:RequestTag/{tag}": value}}
    clusters = settings.names.arn(_SERVICE, "cluster/*")
    add_starter(
        stack,
        settings,
        EMR,
        (
            Grant((f"{_SERVICE}:RunJobFlow",), ("*",), tagged),
            Grant((f"{_SERVICE}:AddTags",), (clusters,), tagged),
            pass_roles(settings, service_role(EMR), service=_SERVICE),
            pass_roles(settings, machine_role(EMR), service="ec2"),
        ),
    )
    return stack


def add_persistent_emr_stack(scope: Construct, settings: DeploymentSettings) -> Stack:
    """Add PersistentEmrBulkImportStack: a cluster that runs, and costs, all the time."""
    description = "bulk imports on a cluster of EMR that is kept"
    stack = new_stack(scope, settings, PERSISTENT_EMR.stack, description)
    add_emr_access(stack, settings, PERSISTENT_EMR)
    cluster = _add_cluster(stack, settings)
    for each in ("encryption", "profile"):
        cluster.add_dependency(stack.node.find_child(each))
    for each in (service_role(PERSISTENT_EMR), machine_role(PERSISTENT_EMR)):
        cluster.node.add_dependency(stack.node.find_child(f"{settings.names.named(each)}-role"))
    itself = settings.names.arn(_SERVICE, f"cluster/{cluster.ref}")
    add_starter(
        stack,
        settings,
        PERSISTENT_EMR,
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
        name=names.named(PERSISTENT_EMR.resource),
        release_label=clusters.persistent_release,
        applications=[emr.CfnCluster.ApplicationProperty(name="Spark")],
        instances=_instances(settings),
        service_role=names.named(service_role(PERSISTENT_EMR)),
        job_flow_role=names.named(machine_role(PERSISTENT_EMR)),
        security_configuration=names.named(PERSISTENT_EMR.resource),
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
    group = settings.properties.text(f"{EMR.family}.master.additional.security.group")
    return emr.CfnCluster.JobFlowInstancesConfigProperty(
        ec2_subnet_ids=list(settings.subnets),
        ec2_key_name=settings.properties.text(f"{EMR.family}.keypair.name"),
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
        return settings.properties.text(f"{PERSISTENT_EMR.family}.{name}") or ""

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
        return settings.properties.text(f"{EMR.family}.ebs.{name}") or ""

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


# ---------------------------------------------------------------- emr serverless
#
# EmrServerlessBulkImportStack: an application that starts with a job, and stops when idle.

_SERVERLESS: Final = "emr-serverless"


def add_serverless_stack(scope: Construct, settings: DeploymentSettings) -> Stack:
    """Add the stack. By default nothing runs, and costs, while there is no job."""
    stack = new_stack(scope, settings, EMR_SERVERLESS.stack, "bulk imports on EMR Serverless")
    clusters, names = settings.properties.clusters, settings.names
    application = serverless.CfnApplication(
        stack,
        "application",
        name=names.named(EMR_SERVERLESS.resource),
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
        network_configuration=_serverless_network(stack, settings),
    )
    add_failure_rule(
        stack,
        settings,
        f"{EMR_SERVERLESS.resource}-failed",
        pattern={
            "source": [f"aws.{_SERVERLESS}"],
            "detail-type": ["EMR Serverless Job Run State Change"],
            "detail": {"applicationId": [application.ref], "state": ["FAILED"]},
        },
        text="job run <run> is <state>",
        facts={"run": "$.detail.jobRunId", "state": "$.detail.state"},
    )
    key = settings.properties.cloud.key_arn
    for_disks = () if key is None else _use_for_disks(key)  # each job run says which key
    jobs = (*job_grants(settings), *for_disks)
    add_role(stack, names.named(EMR_SERVERLESS.resource), _SERVERLESS, jobs)
    add_properties(stack, settings, {APPLICATION_ID: application.ref})
    runs = Grant((f"{_SERVERLESS}:StartJobRun",), (application.attr_arn,))
    add_starter(
        stack,
        settings,
        EMR_SERVERLESS,
        (runs, pass_roles(settings, EMR_SERVERLESS.resource, service=_SERVERLESS), *for_disks),
    )
    return stack


def _serverless_network(
    stack: Stack, settings: DeploymentSettings
) -> serverless.CfnApplication.NetworkConfigurationProperty | None:
    """Return where drivers and executors have addresses: in the VPC, if that was asked for."""
    if not settings.properties.cloud.in_vpc:
        return None
    group = add_closed_group(
        stack,
        settings,
        "jobs-security-group",
        f"{EMR_SERVERLESS.resource}-jobs",
        "Drivers and executors of Spark",
    )
    return serverless.CfnApplication.NetworkConfigurationProperty(
        security_group_ids=[group.attr_group_id], subnet_ids=list(settings.subnets)
    )


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
