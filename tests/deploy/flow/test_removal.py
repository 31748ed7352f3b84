"""What is removed with a deployed instance, in which order, and what is never removed."""

from __future__ import annotations

import pytest

import sleeper
from sleeper.deploy.flow.deployed_stacks import DeployedStacks
from sleeper.deploy.flow.removal import plan_deployed_removal
from sleeper.deploy.names import RETAIN
from sleeper.errors import BadRequest, DeploymentFailed, StorageFailed
from sleeper.instance.instance import removal_of
from tests.deploy.flow.emulator import account, cloud, s3_credentials
from tests.deploy.flow.test_stack_changes import QUEUE, table

__all__ = ["account", "cloud", "s3_credentials"]


def test_data_that_is_to_be_kept_is_not_in_a_stack_that_deletes_it(cloud):
    """Given a stack that would delete tables, then nothing is removed while they are to be kept."""
    compute = cloud.make_stack("QueryStack", {"Topic": {"Type": "AWS::SNS::Topic"}})
    core = cloud.make_stack("InstanceStack", {"Table": table("a")})
    stacks = cloud.stacks()

    with pytest.raises(BadRequest, match=r"would delete Table.*sleeper deploy aws"):
        plan_deployed_removal(cloud.url, stacks, {RETAIN: "true"}, None)

    plan = plan_deployed_removal(cloud.url, stacks, {RETAIN: "false"}, None)
    assert plan.stacks == (compute, core)
    assert plan.data_stacks == (core,)
    lines = []
    plan.carry_out(stacks, None, lines.append)
    assert lines == [f"removing stack {compute}", f"removing stack {core}"]
    assert stacks.all() == {}


def test_an_instance_without_stacks_is_removed_as_ever(cloud):
    """Given an instance that `sleeper init` made, then there is no removal of stacks."""
    sleeper.create_instance(cloud.url).close()
    data = removal_of(cloud.url)

    assert plan_deployed_removal(cloud.url, cloud.stacks(), data.values, data) is None
    with pytest.raises(BadRequest, match=rf"{RETAIN}=false"):
        plan_deployed_removal(cloud.url, cloud.stacks(), {RETAIN: "true"}, data)


def test_stacks_that_cannot_be_looked_for_stop_a_removal_that_keeps_data(cloud, monkeypatch):
    """Given credentials without CloudFormation, then only an instance of init is removed."""

    def refused(_):
        raise StorageFailed("cannot look for stacks: it is denied")

    monkeypatch.setattr(DeployedStacks, "all", refused)

    assert plan_deployed_removal(cloud.url, cloud.stacks(), {}, None) is None
    with pytest.raises(StorageFailed, match="denied"):
        plan_deployed_removal(cloud.url, cloud.stacks(), {RETAIN: "true"}, None)


def test_a_stack_of_somebody_else_stops_the_removal(cloud):
    """Given a stack with the instance's name and another's tag, then nothing is removed."""
    cloud.make_stack("InstanceStack", {"Queue": QUEUE}, owner="aws://another")

    with pytest.raises(BadRequest, match=r"nothing was removed: .*aws://another"):
        plan_deployed_removal(cloud.url, cloud.stacks(), None, None)


def test_nested_stacks_are_removed_by_the_stack_that_has_them(cloud, monkeypatch):
    """Given stacks that a construct has nested, then nothing is removed, and the error says where.

    The emulator nests no stacks: its answer gets what Amazon's has of them.
    """
    name = cloud.make_stack("parent-InstanceStackNested-1A2B", {"Table": table("a")})
    stacks = cloud.stacks()
    root = "arn:aws:cloudformation:us-east-1:000000000000:stack/platform/0a1b"

    def nest(parsed, **_):
        for each in parsed["Stacks"]:
            if each["StackName"] == name:
                each |= {"ParentId": root, "RootId": root}

    stacks.client.meta.events.register("after-call.cloudformation.DescribeStacks", nest)

    assert stacks.nesting() == ("platform",)
    assert stacks.all() == {}, "they are not removed one by one"
    for values, data in (({RETAIN: "true"}, "Buckets and tables stay"), ({}, "go with them")):
        with pytest.raises(BadRequest, match=f"cdk destroy platform.*{data}"):
            plan_deployed_removal(cloud.url, stacks, values, None)


def test_a_stack_that_stays_says_why(cloud, monkeypatch):
    """Given CloudFormation that cannot delete something, then the error has its reason."""
    name = cloud.make_stack("InstanceStack", {"Queue": QUEUE})
    stacks = cloud.stacks()
    monkeypatch.setattr(DeployedStacks, "failed_events", lambda *_: "Bucket: it has objects still.")
    monkeypatch.setattr(DeployedStacks, "client", Undeletable(stacks.client))

    with pytest.raises(DeploymentFailed, match=r"cannot be deleted.*it has objects still"):
        stacks.delete(name, lambda _: None)


class Undeletable:
    """A client of CloudFormation that deletes nothing."""

    def __init__(self, client):
        self._client = client

    def __getattr__(self, name):
        return getattr(self._client, name)

    def delete_stack(self, **_):
        """Do nothing."""
