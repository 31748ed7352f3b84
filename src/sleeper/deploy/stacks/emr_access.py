"""What clusters of EMR have in common: roles, and the encryption of disks."""

from __future__ import annotations

from typing import Any, Final

from aws_cdk import RemovalPolicy, Stack
from aws_cdk import aws_emr as emr
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms

from sleeper.deploy.grants import Grant
from sleeper.deploy.platforms import machine_role, service_role
from sleeper.deploy.settings import DeploymentSettings
from sleeper.deploy.stacks.job_access import job_grants, pass_roles
from sleeper.deploy.stacks.roles import add_role

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


def add_emr_access(stack: Stack, settings: DeploymentSettings, name: str) -> None:
    """Add the role of EMR, that of machines, and a security configuration.

    Args:
        stack: Where.
        settings: The settings of the deployment.
        name: What their names begin with, after the instance's prefix.
    """
    names = settings.names
    key = settings.properties.clusters.ebs_key_arn or _add_key(stack, settings, name)
    use_key = (
        Grant(_FOR_DISKS, (key,)),
        Grant(("kms:CreateGrant",), (key,), {"Bool": {"kms:GrantIsForAWSResource": "true"}}),
    )
    service = names.named(service_role(name))
    role = add_role(stack, service, _SERVICE, [*_network_grants(settings, name), *use_key])
    role.add_managed_policy(
        iam.ManagedPolicy.from_aws_managed_policy_name("service-role/AmazonEMRServicePolicy_v2")
    )
    machines = names.named(machine_role(name))
    add_role(stack, machines, "ec2", [*job_grants(settings), *use_key])
    profile = iam.CfnInstanceProfile(
        stack, "profile", instance_profile_name=machines, roles=[machines]
    )
    profile.add_dependency(_resource(stack, f"{machines}-role"))
    emr.CfnSecurityConfiguration(
        stack,
        "encryption",
        name=names.named(name),
        security_configuration=_encryption(key),
    )


def _add_key(stack: Stack, settings: DeploymentSettings, name: str) -> str:
    """Add a key; whoever may use it is told by policies of IAM."""
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
        description=f"Disks of {settings.names.named(name)}",
        enable_key_rotation=True,
        pending_window_in_days=_KEPT_DAYS,
        key_policy=policy,
    )
    key.apply_removal_policy(RemovalPolicy.DESTROY)
    return str(key.attr_arn)


def _network_grants(settings: DeploymentSettings, name: str) -> tuple[Grant, ...]:
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
        pass_roles(settings, machine_role(name), service="ec2"),
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
