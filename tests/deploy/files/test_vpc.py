"""deploy/aws/vpc.yaml: a VPC that the check of networks finds nothing wrong with."""

from __future__ import annotations

import pytest
from aws_cdk import App, Environment, Stack
from aws_cdk import aws_ec2 as ec2
from cfnlint.api import lint

from sleeper.deploy.flow.checks import Level, check_network, gateway_name
from tests.contracts.s3_server import REGION
from tests.deploy.files.programs import ROOT
from tests.deploy.flow.emulator import account, cloud, s3_credentials

__all__ = ["account", "cloud", "s3_credentials"]

TEMPLATE = ROOT / "deploy" / "aws" / "vpc.yaml"


def made(cloud):
    """Make the VPC in the emulator, which has no NAT; return its id and those of its subnets."""
    client = cloud.client("cloudformation")
    client.create_stack(StackName=cloud.instance_id, TemplateBody=TEMPLATE.read_text())
    client.get_waiter("stack_create_complete").wait(StackName=cloud.instance_id)
    (stack,) = client.describe_stacks(StackName=cloud.instance_id)["Stacks"]
    outputs = {each["OutputKey"]: each["OutputValue"] for each in stack["Outputs"]}
    return outputs["Vpc"], outputs["Subnets"].split(",")


def test_cfn_lint_finds_nothing():
    """Given the template, then it is one that CloudFormation takes."""
    matches = lint(TEMPLATE.read_text(), regions=["eu-west-2", "us-east-1"])

    assert [f"{each.rule.id} {each.message}" for each in matches] == []


def test_an_instance_can_be_deployed_into_it(cloud):
    """Given the one without a NAT, then tasks have a way out."""
    vpc, subnets = made(cloud)

    found = check_network(vpc, subnets, REGION)

    assert [each.level for each in found] == [Level.OK]
    assert len(subnets) == 2


@pytest.mark.parametrize("region", ["eu-west-2", "cn-north-1", "cn-northwest-1"])
def test_gateway_endpoints_have_the_names_that_amazon_gives_them(region):
    """Given a region in China too, then the template and the check name them as the CDK does."""
    app = Stack(App(), "vpc", env=Environment(region=region))
    for service, known in (
        ("s3", ec2.GatewayVpcEndpointAwsService.S3),
        ("dynamodb", ec2.GatewayVpcEndpointAwsService.DYNAMODB),
    ):
        name = app.resolve(known.name)
        prefix, _, end = name["Fn::Join"][1] if isinstance(name, dict) else name.partition(region)

        assert gateway_name(service, region) == f"{prefix}{region}{end}"
        assert f"{prefix}${{AWS::Region}}{end}" in TEMPLATE.read_text()


def test_functions_are_not_put_into_public_subnets(cloud):
    """Given the one without a NAT, then a deployment of functions is warned."""
    vpc, subnets = made(cloud)

    (_, found) = check_network(vpc, subnets, REGION, for_functions=True)

    assert found.level is Level.WARNING
    assert "sleeper.deploy.in.vpc is true" in found.text
