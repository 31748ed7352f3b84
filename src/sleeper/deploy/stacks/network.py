"""Security groups, and the place of functions and job runs in the user's VPC."""

from __future__ import annotations

from typing import Final

from aws_cdk import Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_lambda as functions

from sleeper.deploy.grants import Grant
from sleeper.deploy.settings import DeploymentSettings

_GROUP: Final = "functions-security-group"
_INTERFACES: Final = (
    "ec2:AssignPrivateIpAddresses",
    "ec2:CreateNetworkInterface",
    "ec2:DeleteNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "ec2:UnassignPrivateIpAddresses",
)


def add_closed_group(
    stack: Stack, settings: DeploymentSettings, logical: str, name: str, whose: str
) -> ec2.CfnSecurityGroup:
    """Add a security group that lets nobody in, and HTTPS out.

    Args:
        stack: Where.
        settings: The settings of the deployment.
        logical: Its id in the template.
        name: Its name, after the instance's prefix.
        whose: Who has it.
    """
    return ec2.CfnSecurityGroup(
        stack,
        logical,
        group_name=settings.names.named(name),
        group_description=f"{whose}: nothing connects to them, they connect by HTTPS",
        vpc_id=settings.properties.cloud.vpc,
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


def function_network(
    stack: Stack, settings: DeploymentSettings
) -> functions.CfnFunction.VpcConfigProperty | None:
    """Return where a function of a stack runs: in the VPC if that was asked for, else in none.

    All functions of a stack have one security group, so a stack can come or go by itself.
    """
    if not settings.properties.cloud.in_vpc:
        return None
    made = stack.node.try_find_child(_GROUP)
    if made is None:
        name = f"{str(stack.node.id).lower()}-functions"
        made = add_closed_group(stack, settings, _GROUP, name, "Functions of Sleeper")
    assert isinstance(made, ec2.CfnSecurityGroup)
    return functions.CfnFunction.VpcConfigProperty(
        security_group_ids=[made.attr_group_id], subnet_ids=list(settings.subnets)
    )


def use_network(settings: DeploymentSettings) -> tuple[Grant, ...]:
    """Allow a function to have an address in the VPC, if that was asked for."""
    # AWS lets none of these be limited to a VPC or a subnet for the role of a function.
    return (Grant(_INTERFACES, ("*",)),) if settings.properties.cloud.in_vpc else ()
