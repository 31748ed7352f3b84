"""Under the policies of `sleeper deploy policy` alone an instance is deployed, changed and removed.

A proxy refuses what they do not allow: of this process, and of the CDK's command line. What the
emulator's CloudFormation does goes through no proxy: tests/deploy/stacks/test_deployer_policy.py
compares that with the registry of AWS.
"""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version

import pytest

import sleeper
from sleeper.deploy.flow import images, service_roles
from tests.contracts.s3_server import REGION, s3_credentials
from tests.deploy.flow.emulator import (
    ACCOUNT,
    Cloud,
    account,
    cdk_path,
    download_from,
    enter_cloud,
    put_image,
)
from tests.deploy.flow.test_deployment import run_worker, smoke_job
from tests.deploy.stacks.enforcing_proxy import Asked, enforcing_proxy
from tests.unit.interfaces.command_line import json_of
from tests.unit.interfaces.command_line import sleeper as command

__all__ = ["account", "cdk_path", "s3_credentials"]

STACKS = "IngestStack,GarbageCollectorStack,DashboardStack"


@pytest.fixture
def proxy(account, cdk_path, monkeypatch):
    """The proxy before the emulator, through which commands go; it lets all through at first."""
    with enforcing_proxy(account, f"{REGION}:{ACCOUNT}") as made:
        enter_cloud(monkeypatch, made.endpoint, cdk_path)
        monkeypatch.setattr(images, "download", partial(download_from, account))
        monkeypatch.setattr(service_roles, "KNOWN_S", 0)
        yield made


@pytest.fixture
def cloud(account, proxy):
    """The emulator without the proxy, an image in ECR, and the id of an instance."""
    made = Cloud(account, f"p-{uuid.uuid4().hex[:8]}")
    put_image(made, "sleeper/worker", version("sleeper-store"), ["amd64"])
    return made


@pytest.fixture
def words(cloud):
    """The options of a deployment: a network and a few stacks, which take a quarter of the time of all."""
    ec2 = cloud.client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.81.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.81.1.0/24")["Subnet"]["SubnetId"]
    values = {
        "sleeper.vpc": vpc,
        "sleeper.subnets": subnet,
        "sleeper.optional.stacks": STACKS,
    }
    return [word for name, value in values.items() for word in ("--set", f"{name}={value}")]


def direct_rights(policies):
    """What the policies allow a direct call, by action and resource."""
    return [
        (action, resource)
        for document in policies.values()
        for statement in document["Statement"]
        if "aws:CalledVia" not in str(statement.get("Condition"))
        for action in statement["Action"]
        for resource in statement["Resource"]
    ]


@contextmanager
def everything_allowed(proxy):
    """For what workers do, which have roles of their own."""
    allowed, proxy.allowed = proxy.allowed, None
    yield
    proxy.allowed = allowed


def test_an_instance_is_deployed_used_and_removed_under_the_policies(proxy, cloud, words):
    """Given only the policies, when each command of the page is run, then nothing is refused."""
    id_ = cloud.instance_id
    printed = command("deploy", "policy", id_, *words, "--account", ACCOUNT, "--region", REGION)
    proxy.allowed = direct_rights(json_of(printed))

    deployed = command("deploy", "aws", id_, *words, "--yes", "--no-smoke-test")
    assert deployed.exit_code == 0, deployed.output
    assert "credentials may not" not in deployed.output
    assert "WARNING: whether the account has the service-linked role" not in deployed.output

    def work(_):
        with everything_allowed(proxy):
            run_worker(cloud, "ingest")

    with sleeper.connect(cloud.url) as instance:
        smoke_job(instance, cloud, work).run()
    changed = command(
        *("deploy", "aws", id_, "--yes", "--no-smoke-test"),
        *("--set", "sleeper.query.queue.visibility.timeout.seconds=950"),
        *("--set", f"sleeper.optional.stacks={STACKS.replace(',GarbageCollectorStack', '')}"),
    )
    assert changed.exit_code == 0, changed.output
    kept = command("destroy", cloud.url, "--yes")
    assert kept.exit_code == 0, kept.output
    command("instance", "set", "sleeper.retain.infra.after.destroy=false", "--instance", cloud.url)
    gone = command("destroy", cloud.url, "--yes")
    assert gone.exit_code == 0, gone.output

    assert proxy.denied == []
    assert cloud.stacks().all() == {}


def test_the_proxy_refuses_what_a_policy_lacks(proxy, cloud, words):
    """Given policies without change sets, then a deployment is refused: the proxy does its work."""
    id_ = cloud.instance_id
    printed = command("deploy", "policy", id_, *words, "--account", ACCOUNT, "--region", REGION)
    allowed = direct_rights(json_of(printed))
    proxy.allowed = [each for each in allowed if each[0] != "cloudformation:CreateChangeSet"]

    refused = command("deploy", "aws", id_, *words, "--yes", "--no-smoke-test")

    assert refused.exit_code == 1
    assert {each.action for each in proxy.denied} == {"cloudformation:CreateChangeSet"}
    assert isinstance(proxy.denied[0], Asked)
