"""Roles and policies of IAM, made from grants."""

from __future__ import annotations

from collections.abc import Iterable

from aws_cdk import Stack
from aws_cdk import aws_iam as iam

from sleeper.deploy.grants import Grant


def statement(grant: Grant) -> iam.PolicyStatement:
    """Return the statement of a policy that says what a grant says."""
    return iam.PolicyStatement(
        actions=list(grant.actions),
        resources=list(grant.resources),
        conditions=None if grant.conditions is None else dict(grant.conditions),
    )


def add_role(stack: Stack, name: str, service: str, grants: Iterable[Grant]) -> iam.Role:
    """Add a role that a service of AWS takes.

    Args:
        stack: Where.
        name: Its name.
        service: The service, such as `lambda`.
        grants: What it may do.
    """
    return iam.Role(
        stack,
        f"{name}-role",
        role_name=name,
        assumed_by=iam.ServicePrincipal(f"{service}.amazonaws.com"),
        inline_policies={"access": iam.PolicyDocument(statements=[*map(statement, grants)])},
    )


def add_policy(stack: Stack, name: str, description: str, grants: Iterable[Grant]) -> None:
    """Add a policy that a user can attach to roles.

    Args:
        stack: Where.
        name: Its name.
        description: Whom it is for.
        grants: What it allows.
    """
    iam.ManagedPolicy(
        stack,
        f"{name}-policy",
        managed_policy_name=name,
        description=description,
        statements=[*map(statement, grants)],
    )
