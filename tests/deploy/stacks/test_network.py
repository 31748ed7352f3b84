"""Functions and job runs in the user's VPC, where that is asked for."""

from __future__ import annotations

import json

from cfnlint.api import lint

from sleeper.deploy.deployer_policy import deployer_policies
from sleeper.deploy.settings import setting_failures
from tests.deploy.stacks.conftest import ACCOUNT, NETWORK, REGION

IN_VPC = "sleeper.deploy.in.vpc"


def test_nothing_but_tasks_and_clusters_is_in_it_by_default(default):
    """Given no word of it, then functions and EMR Serverless need no NAT."""
    functions = default.resources("AWS::Lambda::Function")
    (application,) = default.resources("AWS::EMRServerless::Application")

    assert [each for each in functions if "VpcConfig" in each.properties] == []
    assert "NetworkConfiguration" not in application.properties


def test_functions_of_a_stack_share_a_closed_group(synthesised):
    """Given the wish, then each function has addresses in the subnets, and may make them."""
    deployed = synthesised({IN_VPC: "true"})
    subnets = NETWORK["sleeper.subnets"].split(",")

    for function in deployed.resources("AWS::Lambda::Function"):
        config = function.properties["VpcConfig"]
        groups = deployed.resources("AWS::EC2::SecurityGroup", stack=function.stack)
        (used,) = config["SecurityGroupIds"]
        assert config["SubnetIds"] == subnets
        assert used["Fn::GetAtt"] in [[each.id, "GroupId"] for each in groups]
        role = deployed.resource("AWS::IAM::Role", function.name.removeprefix("sleeper-demo"))
        assert "ec2:CreateNetworkInterface" in json.dumps(role.properties["Policies"])
    (application,) = deployed.resources("AWS::EMRServerless::Application")
    assert application.properties["NetworkConfiguration"]["SubnetIds"] == subnets
    for group in deployed.resources("AWS::EC2::SecurityGroup"):
        assert "SecurityGroupIngress" not in group.properties
    names = [each.name for each in deployed.resources("AWS::EC2::SecurityGroup")]
    assert len({*names}) == len(names)


def test_its_templates_have_no_error(synthesised):
    """Cfn-lint finds none in those that it changes, and policies of who deploys know all types."""
    deployed = synthesised({IN_VPC: "true"})
    changed = ("WorkersStack", "QueryStack", "EmrServerlessBulkImportStack")
    texts = [deployed.stacks[each].template.read_text() for each in changed]

    found = [f"{each.rule.id} {each.message}" for text in texts for each in lint(text)]

    assert found == []
    allowed = deployer_policies(map(json.loads, texts), deployed.settings.names)
    assert "ec2:CreateSecurityGroup" in json.dumps(allowed)


def test_it_needs_a_network_whatever_the_stacks():
    """Given no stack of tasks, then the VPC and its subnets are asked for all the same."""
    given = {
        "sleeper.id": "demo",
        "sleeper.optional.stacks": "QueryStack",
        IN_VPC: "true",
    }

    failures = dict(setting_failures(given, ACCOUNT, REGION))

    assert failures.keys() == {"sleeper.vpc", "sleeper.subnets"}
    assert "which sleeper.deploy.in.vpc needs" in failures["sleeper.vpc"]
