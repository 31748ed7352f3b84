"""Who may do what on the cluster of EKS: roles of AWS, and entries of the cluster."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from aws_cdk import Fn, Stack
from aws_cdk import aws_eks as eks
from aws_cdk import aws_iam as iam

from sleeper.deploy.grants import Grant
from sleeper.deploy.settings import DeploymentSettings
from sleeper.deploy.stacks.job_access import job_grants
from sleeper.deploy.stacks.roles import statement
from sleeper.spark.submit.eks.manifests import NAME as ACCOUNT

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
        policies=_inline(grants),
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
        policies=_inline(job_grants(settings)),
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


def _inline(grants: Iterable[Grant]) -> list[iam.CfnRole.PolicyProperty] | None:
    statements = [*map(statement, grants)]
    if not statements:
        return None
    document = iam.PolicyDocument(statements=statements)
    return [iam.CfnRole.PolicyProperty(policy_name="access", policy_document=document)]
