"""EksBulkImportStack: a cluster of EKS with Fargate, and the state machine that runs jobs there."""

from __future__ import annotations

import json
from typing import Final

from aws_cdk import App, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks as eks
from aws_cdk import aws_stepfunctions as steps

from sleeper.deploy.grants import Grant
from sleeper.deploy.platforms import EKS, state_machine_arn
from sleeper.deploy.settings import DeploymentSettings
from sleeper.deploy.stacks.eks_access import add_eks_role, add_entry, add_job_role
from sleeper.deploy.stacks.job_access import add_starter
from sleeper.deploy.stacks.new_stack import new_stack
from sleeper.model.jobs.messages import QueueName
from sleeper.spark.submit.eks.manifests import Manifests
from sleeper.spark.submit.eks.state_machine import StateMachine

_KUBERNETES: Final = "1.35"
_NAMESPACE: Final = "sleeper.bulk.import.eks.k8s.namespace"
_DNS: Final = "kube-system"


def add_eks_stack(app: App, settings: DeploymentSettings) -> Stack:
    """Add the stack. The cluster costs all the time; pods only while a job runs."""
    stack = new_stack(app, settings, "EksBulkImportStack", "bulk imports on EKS")
    names, namespace = settings.names, settings.properties.text(_NAMESPACE) or "default"
    cluster = _add_cluster(stack, settings)
    _add_fargate(stack, settings, cluster, namespace)
    job_role = add_job_role(stack, settings, f"{EKS}-jobs", cluster, namespace)
    role = add_eks_role(stack, names.named(f"{EKS}-runs"), "states")
    machine = StateMachine(
        cluster_name=names.named(EKS),
        endpoint="${Endpoint}",
        certificate="${Certificate}",
        partition=names.partition,
        manifests=Manifests(
            namespace=namespace,
            image=settings.image("spark"),
            role_arn=names.role_arn(f"{EKS}-jobs"),
            region=names.region,
        ),
    )
    runs = steps.CfnStateMachine(
        stack,
        "runs",
        state_machine_name=names.named(EKS),
        role_arn=role.attr_arn,
        definition_string=json.dumps(machine.definition(), separators=(",", ":")),
        definition_substitutions={
            "Endpoint": cluster.attr_endpoint,
            "Certificate": cluster.attr_certificate_authority_data,
        },
    )
    runs.add_dependency(job_role)
    add_entry(stack, cluster, "runs-entry", role.attr_arn, "Admin", namespace)
    _add_people(stack, settings, cluster)
    executions = names.arn("states", f"execution:{names.named(EKS)}:*")
    add_starter(
        stack,
        settings,
        f"{EKS}-starter",
        QueueName.BULK_IMPORT_EKS,
        (
            Grant(("states:StartExecution",), (state_machine_arn(names),)),
            Grant(("states:DescribeExecution",), (executions,)),
        ),
    )
    return stack


def _add_cluster(stack: Stack, settings: DeploymentSettings) -> eks.CfnCluster:
    """Add the cluster. Step Functions reaches its API by the internet, with a role of IAM."""
    names = settings.names
    role = add_eks_role(stack, names.named(EKS), "eks", "AmazonEKSClusterPolicy")
    return eks.CfnCluster(
        stack,
        "cluster",
        name=names.named(EKS),
        version=_KUBERNETES,
        role_arn=role.attr_arn,
        resources_vpc_config=eks.CfnCluster.ResourcesVpcConfigProperty(
            subnet_ids=list(settings.subnets),
            endpoint_public_access=True,
            endpoint_private_access=True,
        ),
        access_config=eks.CfnCluster.AccessConfigProperty(
            authentication_mode="API", bootstrap_cluster_creator_admin_permissions=False
        ),
        bootstrap_self_managed_addons=False,
    )


def _add_fargate(
    stack: Stack, settings: DeploymentSettings, cluster: eks.CfnCluster, namespace: str
) -> None:
    """Add what runs pods of the namespace, and the name service that they need."""
    role = add_eks_role(
        stack,
        settings.names.named(f"{EKS}-pods"),
        "eks-fargate-pods",
        "AmazonEKSFargatePodExecutionRolePolicy",
    )
    profile = eks.CfnFargateProfile(
        stack,
        "fargate",
        cluster_name=cluster.ref,
        fargate_profile_name=settings.names.named(EKS),
        pod_execution_role_arn=role.attr_arn,
        subnets=list(settings.subnets),
        selectors=[
            eks.CfnFargateProfile.SelectorProperty(namespace=each)
            for each in dict.fromkeys((namespace, _DNS))
        ],
    )
    names_service = eks.CfnAddon(
        stack,
        "dns",
        cluster_name=cluster.ref,
        addon_name="coredns",
        configuration_values=json.dumps({"computeType": "Fargate"}),
        resolve_conflicts="OVERWRITE",
    )
    names_service.add_dependency(profile)


def _add_people(stack: Stack, settings: DeploymentSettings, cluster: eks.CfnCluster) -> None:
    """Let the roles and networks in that properties name."""
    clusters, names = settings.properties.clusters, settings.names
    for role in clusters.eks_admin_roles or ():
        arn = names.arn("iam", f"role/{role}", region=False)
        add_entry(stack, cluster, f"admin-{role}", arn, "ClusterAdmin")
    for group in clusters.eks_allowed_groups or ():
        ec2.CfnSecurityGroupIngress(
            stack,
            f"api-{group}",
            group_id=cluster.attr_cluster_security_group_id,
            source_security_group_id=group,
            ip_protocol="tcp",
            from_port=443,
            to_port=443,
            description="The API of Kubernetes",
        )
