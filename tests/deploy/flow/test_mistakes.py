"""Mistakes in what is asked for: each is told by its cause, before anything is made."""

from __future__ import annotations

import os

import pytest

import sleeper
from sleeper.deploy.stack_properties import STACK_PROPERTIES
from sleeper.errors import InstanceNotFound
from sleeper.model.known_properties.catalogue import INSTANCE_PROPERTIES_BY_NAME
from sleeper.storage.aws import clients
from tests.contracts.s3_server import REGION, s3_credentials
from tests.deploy.flow.emulator import Cloud, account, cdk_path, cloud, enter_cloud
from tests.deploy.stacks.conftest import NETWORK
from tests.unit.interfaces.command_line import sleeper as command

__all__ = ["account", "cdk_path", "cloud", "s3_credentials"]

STACKS = ("--set", "sleeper.optional.stacks=QueryStack")


@pytest.fixture
def environment(account, cdk_path, monkeypatch):
    """The emulator, a region, and the CDK's command line."""
    enter_cloud(monkeypatch, account, cdk_path, AWS_CONFIG_FILE=os.devnull)
    return monkeypatch


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("sleeper.vpc=vpc-123", "the id of a VPC, such as vpc-0a1b2c3d"),
        ("sleeper.subnets=subnet-1", "ids of subnets, such as subnet-0a1b2c3d"),
    ],
)
@pytest.mark.usefixtures("environment")
def test_a_malformed_network_is_not_told_as_missing(setting, told):
    """Given an id that no VPC or subnet has, then its form is told, and not that it is missing."""
    name, _, value = setting.partition("=")
    given = {**NETWORK, name: value}
    words = [word for pair in given.items() for word in ("--set", "=".join(pair))]

    done = command("deploy", "aws", "malformed", *words, "--dry-run")

    assert done.exit_code == 1
    assert told in done.output
    assert value in done.output
    assert f"{name} is missing" not in done.output
    assert "has 0 subnets" not in done.output


@pytest.mark.usefixtures("environment")
def test_an_unknown_property_is_refused_with_the_nearest(cloud):
    """Given names that no property has, then nothing is deployed, by none of the commands."""
    wrong = ("--set", "sleeper.fooo=1", "--set", "sleeper.log.retentoin.dayz=7")
    where = ("--account", "123456789012", "--region", REGION)

    deployed = command("deploy", "aws", cloud.instance_id, *STACKS, *wrong, "--dry-run")
    policies = command("deploy", "policy", cloud.instance_id, *STACKS, *wrong, *where)

    for done in (deployed, policies):
        assert done.exit_code == 1
    assert "sleeper.fooo is no property of an instance" in deployed.output
    assert "Did you mean sleeper.log.retention.days?" in deployed.output
    assert "is no property of an instance" in policies.output


def test_no_region_is_refused(environment, cloud):
    """Given no region in the environment, then none is taken, and what to set is told."""
    environment.delenv("AWS_REGION")

    for words in (("aws", cloud.instance_id, "--dry-run"), ("policy", cloud.instance_id)):
        done = command("deploy", *words, *STACKS)
        assert done.exit_code == 1
        assert "no region is set" in done.output
        assert "export AWS_REGION=" in done.output


def test_an_instance_in_another_region_is_told_as_that(environment, cloud):
    """Given an instance that is elsewhere, then it is not taken over, and both ways out are told."""
    sleeper.create_instance(cloud.url).close()
    environment.setenv("AWS_REGION", "eu-west-1")
    environment.setattr(clients, "_clients", {})

    done = command("deploy", "aws", cloud.instance_id, *STACKS, "--dry-run")

    assert done.exit_code == 1
    assert f"{cloud.url} is there already, in {REGION}" in done.output
    assert f"AWS_REGION={REGION}" in done.output
    assert "choose another id" in done.output
    assert "taken over" not in done.output
    assert "sleeper init" not in done.output


def test_a_property_of_stacks_is_not_told_as_in_force(environment, cloud):
    """Given a deployed instance, then what its stacks are made from needs the other command."""
    with sleeper.create_instance(cloud.url, {"sleeper.version": "1.0"}):
        of_stack = command(
            "instance", "set", "sleeper.log.retention.days=7", "--instance", cloud.url
        )
        both = command(
            *("instance", "set", "sleeper.log.retention.days=14", "sleeper.gc.batch.size=50"),
            *("--instance", cloud.url),
        )
        other = command("instance", "set", "sleeper.gc.batch.size=5", "--instance", cloud.url)

    again = f"sleeper deploy aws {cloud.instance_id} --set sleeper.log.retention.days="
    assert f"{again}7" in of_stack.output
    assert "in force" not in of_stack.output
    assert f"{again}14" in both.output
    assert "in force" in both.output
    assert "deploy" not in other.output
    assert "in force" in other.output


def test_an_instance_that_was_not_deployed_has_no_stacks(environment, cloud):
    """Given an instance of `sleeper init`, then no deployment is asked for."""
    assert isinstance(cloud, Cloud)
    with sleeper.create_instance(cloud.url):
        done = command("instance", "set", "sleeper.log.retention.days=7", "--instance", cloud.url)

    assert done.exit_code == 0
    assert "deploy" not in done.output


def test_properties_of_stacks_are_known():
    """Given the list, then each is a property of an instance."""
    assert INSTANCE_PROPERTIES_BY_NAME.keys() >= STACK_PROPERTIES


def test_an_instance_that_is_not_deployed_says_what_deploys_it(cloud):
    """Given aws://ID where nothing is, then both ways to make one are named."""
    wanted = f"sleeper init {cloud.url}.*; `sleeper deploy aws {cloud.instance_id}` deploys one"

    with pytest.raises(InstanceNotFound, match=wanted):
        sleeper.connect(cloud.url)
