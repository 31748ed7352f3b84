"""EksBulkImportStack: a cluster of EKS with Fargate, and the state machine that runs jobs there."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from aws_cdk import Fn, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks as eks
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as steps
from constructs import Construct

from sleeper.deploy.grants import Grant
from sleeper.deploy.platforms import state_machine_arn
from sleeper.deploy.settings import DeploymentSettings
from sleeper.deploy.stacks.bulk_import import add_starter, job_grants
from sleeper.deploy.stacks.parts import new_stack, statement, with_key
from sleeper.model.jobs.platforms import EKS
from sleeper.spark.submit.eks import NAME as ACCOUNT
from sleeper.spark.submit.eks import Manifests, StateMachine

# ---------------------------------------------------------------- eks access
#
# Who may do what on the cluster of EKS: roles of AWS, and entries of the cluster.

_POLICIES: Final = "cluster-access-policy/AmazonEKS{}Policy"
_TRUST: Final = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Action": "sts:AssumeRoleWithWebIdentity",
            "Principal": {"Federated": "${Provider}"},
            "Condition": {
                "StringEquals": {
                    "${Issuer}:aud": "sts.amazonaws.com",
                    "${Issuer}:sub": "system:serviceaccount:${Namespace}:${Account}",
                }
            },
        }
    ],
}


def add_eks_role(
    stack: Stack, name: str, service: str, *managed: str, grants: Iterable[Grant] = ()
) -> iam.CfnRole:
    """Add a role that a service takes, with policies of AWS's own.

    Args:
        stack: Where.
        name: Its name.
        service: The service, such as `eks`.
        managed: The policies.
        grants: What else it may do.
    """
    trust = iam.PolicyStatement(
        actions=["sts:AssumeRole"],
        principals=[
            iam.ServicePrincipal(f"{service}.amazonaws.com").with_conditions(
                {"StringEquals": {"aws:SourceAccount": stack.account}}
                if service == "states"
                else {}
            )
        ],
    )
    return iam.CfnRole(
        stack,
        name,
        role_name=name,
        assume_role_policy_document=iam.PolicyDocument(statements=[trust]),
        managed_policy_arns=[f"arn:{stack.partition}:iam::aws:policy/{each}" for each in managed],
        policies=_inline(stack, grants),
    )


def add_job_role(
    stack: Stack,
    settings: DeploymentSettings,
    name: str,
    cluster: eks.CfnCluster,
    namespace: str,
) -> iam.CfnRole:
    """Add the role of pods: that of one service account, by the cluster's own identities.

    Fargate knows no other way. The issuer, in the middle of names, is known when there is a
    cluster, so the document is a text that CloudFormation completes.
    """
    provider = iam.CfnOIDCProvider(
        stack,
        "identities",
        url=cluster.attr_open_id_connect_issuer_url,
        client_id_list=["sts.amazonaws.com"],
    )
    issuer = Fn.select(1, Fn.split("//", cluster.attr_open_id_connect_issuer_url))
    trust = Fn.sub(
        json.dumps(_TRUST),
        {
            "Provider": provider.attr_arn,
            "Issuer": issuer,
            "Namespace": namespace,
            "Account": ACCOUNT,
        },
    )
    return iam.CfnRole(
        stack,
        name,
        role_name=settings.names.named(name),
        assume_role_policy_document=trust,
        policies=_inline(stack, job_grants(settings)),
    )


def add_entry(
    stack: Stack,
    cluster: eks.CfnCluster,
    name: str,
    principal: str,
    policy: str,
    namespace: str | None = None,
) -> None:
    """Let a role work in the cluster.

    Args:
        stack: Where.
        cluster: The cluster.
        name: Names the entry in the stack.
        principal: The ARN of the role.
        policy: EKS's own, such as `Admin`.
        namespace: Where alone; None for the whole cluster.
    """
    scope = eks.CfnAccessEntry.AccessScopeProperty(
        type="namespace" if namespace else "cluster",
        namespaces=[namespace] if namespace else None,
    )
    eks.CfnAccessEntry(
        stack,
        name,
        cluster_name=cluster.ref,
        principal_arn=principal,
        access_policies=[
            eks.CfnAccessEntry.AccessPolicyProperty(
                access_scope=scope,
                policy_arn=f"arn:{stack.partition}:eks::aws:{_POLICIES.format(policy)}",
            )
        ],
    )


def _inline(stack: Stack, grants: Iterable[Grant]) -> list[iam.CfnRole.PolicyProperty] | None:
    statements = [*map(statement, with_key(stack, grants))]
    if not statements:
        return None
    document = iam.PolicyDocument(statements=statements)
    return [iam.CfnRole.PolicyProperty(policy_name="access", policy_document=document)]


_KUBERNETES: Final = "1.35"
_NAMESPACE: Final = "sleeper.bulk.import.eks.k8s.namespace"
_DNS: Final = "kube-system"


def add_eks_stack(scope: Construct, settings: DeploymentSettings) -> Stack:
    """Add the stack. The cluster costs all the time; pods only while a job runs."""
    stack = new_stack(scope, settings, EKS.stack, "bulk imports on EKS")
    names, namespace = settings.names, settings.properties.text(_NAMESPACE) or "default"
    cluster = _add_cluster(stack, settings)
    _add_fargate(stack, settings, cluster, namespace)
    job_role = add_job_role(stack, settings, f"{EKS.resource}-jobs", cluster, namespace)
    role = add_eks_role(stack, names.named(f"{EKS.resource}-runs"), "states")
    machine = StateMachine(
        cluster_name=names.named(EKS.resource),
        endpoint="${Endpoint}",
        certificate="${Certificate}",
        partition=names.partition,
        manifests=Manifests(
            namespace=namespace,
            image=settings.image("spark"),
            role_arn=names.role_arn(f"{EKS.resource}-jobs"),
            region=names.region,
        ),
    )
    runs = steps.CfnStateMachine(
        stack,
        "runs",
        state_machine_name=names.named(EKS.resource),
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
    executions = names.arn("states", f"execution:{names.named(EKS.resource)}:*")
    add_starter(
        stack,
        settings,
        EKS,
        (
            Grant(("states:StartExecution",), (state_machine_arn(names),)),
            Grant(("states:DescribeExecution",), (executions,)),
        ),
    )
    return stack


def _add_cluster(stack: Stack, settings: DeploymentSettings) -> eks.CfnCluster:
    """Add the cluster. Step Functions reaches its API by the internet, with a role of IAM."""
    names = settings.names
    role = add_eks_role(stack, names.named(EKS.resource), "eks", "AmazonEKSClusterPolicy")
    return eks.CfnCluster(
        stack,
        "cluster",
        name=names.named(EKS.resource),
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
        encryption_config=_encryption(settings.properties.cloud.key_arn),
    )


def _encryption(key: str | None) -> list[eks.CfnCluster.EncryptionConfigProperty] | None:
    """Return by which key secrets are encrypted; None for Amazon's own."""
    if key is None:
        return None
    provider = eks.CfnCluster.ProviderProperty(key_arn=key)
    return [eks.CfnCluster.EncryptionConfigProperty(provider=provider, resources=["secrets"])]


def _add_fargate(
    stack: Stack, settings: DeploymentSettings, cluster: eks.CfnCluster, namespace: str
) -> None:
    """Add what runs pods of the namespace, and the name service that they need."""
    role = add_eks_role(
        stack,
        settings.names.named(f"{EKS.resource}-pods"),
        "eks-fargate-pods",
        "AmazonEKSFargatePodExecutionRolePolicy",
    )
    profile = eks.CfnFargateProfile(
        stack,
        "fargate",
        cluster_name=cluster.ref,
        fargate_profile_name=settings.names.named(EKS.resource),
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
