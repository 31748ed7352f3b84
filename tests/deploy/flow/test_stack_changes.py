"""What a deployment would change is told, and loudly where data could be lost."""

from __future__ import annotations

from json import dumps as as_json
from types import SimpleNamespace

import pytest

from sleeper.deploy.flow.deployed_stacks import DeployedStack
from sleeper.deploy.flow.difference import NewTemplate, differences
from sleeper.deploy.flow.removal import unkept
from sleeper.deploy.flow.stack_changes import ChangeKind, changed_stack, new_stack, removed_stack
from sleeper.deploy.flow.template_needs import (
    ImageNeeds,
    most_vcpus,
    needed_images,
    reserved_concurrency,
)
from sleeper.errors import DeploymentFailed
from tests.deploy.flow.emulator import account, cloud, s3_credentials

__all__ = ["account", "cloud", "s3_credentials"]

QUEUE = {"Type": "AWS::SQS::Queue", "Properties": {"VisibilityTimeout": 30}}


def table(key, policy="Delete"):
    return {
        "Type": "AWS::DynamoDB::Table",
        "DeletionPolicy": policy,
        "Properties": {
            "KeySchema": [{"AttributeName": key, "KeyType": "HASH"}],
            "AttributeDefinitions": [{"AttributeName": key, "AttributeType": "S"}],
            "BillingMode": "PAY_PER_REQUEST",
        },
    }


def modified(kind, replacement, **more):
    return {
        "ResourceChange": {
            "Action": "Modify",
            "LogicalResourceId": "It",
            "PhysicalResourceId": "it-in-aws",
            "ResourceType": kind,
            "Replacement": replacement,
            "Details": [{"Target": {"Attribute": "Properties", "Name": "KeySchema"}}],
            **more,
        }
    }


@pytest.mark.parametrize(
    ("change", "loses"),
    [
        (modified("AWS::DynamoDB::Table", "False"), None),
        (modified("AWS::DynamoDB::Table", "True"), "items"),
        (modified("AWS::DynamoDB::Table", "Conditional"), "items"),
        (modified("AWS::S3::Bucket", "True"), "objects"),
        (modified("AWS::SQS::Queue", "True"), "messages"),
        (modified("AWS::Lambda::Function", "True"), None),
        (modified("AWS::S3::Bucket", "True", PolicyAction="ReplaceAndRetain"), None),
        (modified("AWS::S3::Bucket", None, Action="Remove", PolicyAction="Delete"), "objects"),
        (modified("AWS::S3::Bucket", None, Action="Remove", PolicyAction="Retain"), None),
        (modified("AWS::S3::Bucket", None, Action="Import"), None),
    ],
)
def test_data_is_lost_by_replacement_and_removal_alone(change, loses):
    """Given a change as CloudFormation tells it, then it is known what would be lost."""
    (found,) = changed_stack("s", [change]).resources

    assert found.loses == loses
    assert ("WOULD BE LOST" in found.line()) == (loses is not None)


def test_a_new_stack_is_told_by_types_and_a_removed_one_by_resources():
    """Given stacks that come and go, then their lines say what they have."""
    made = new_stack(
        "new", {"Resources": {"A": QUEUE, "B": QUEUE, "C": {"Type": "AWS::IAM::Role"}}}
    )
    gone = removed_stack("old", [("AWS::IAM::Role", "R", "role"), ("AWS::CDK::Metadata", "M", "")])

    assert made.lines() == ["new: new", "  added   1 AWS::IAM::Role", "  added   2 AWS::SQS::Queue"]
    assert gone.lines() == ["old: removed", "  removed AWS::IAM::Role"]
    assert changed_stack("same", []).lines() == ["same: no change"]


def test_a_deployed_stack_is_compared_and_stays_as_it_is(cloud, tmp_path):
    """Given a changed template, then CloudFormation tells each change, and nothing is changed."""
    name = cloud.make_stack("CoreStack", {"Queue": QUEUE, "Old": QUEUE, "Table": table("a")})
    path = tmp_path / "template.json"
    changed = {"Type": "AWS::SQS::Queue", "Properties": {"VisibilityTimeout": 40}}
    path.write_text(
        f'{{"Resources": {{"Queue": {as_json(changed)}, "New": {as_json(QUEUE)}, '
        f'"Table": {as_json(table("b"))}}}}}'
    )
    stacks = cloud.stacks()
    before = stacks.all()

    (found,) = differences(stacks, before, [NewTemplate(name, path)], rest=lambda _: None)

    kinds = {each.name: each.kind for each in found.resources}
    assert kinds == {
        "Queue": ChangeKind.CHANGED,
        "Old": ChangeKind.REMOVED,
        "New": ChangeKind.ADDED,
        "Table": ChangeKind.CHANGED,
    }
    assert {each.name for each in found.losses} == {"Old", "Table"}
    client = cloud.client("cloudformation")
    assert client.list_change_sets(StackName=name)["Summaries"] == []
    assert {each[1] for each in stacks.resources(name)} == {"Queue", "Old", "Table"}


def test_no_change_and_a_removed_stack_are_told(cloud, tmp_path):
    """Given the same template, and a stack that is not chosen any more, then both are told so."""
    same = cloud.make_stack("CoreStack", {"Queue": QUEUE})
    gone = cloud.make_stack("QueryStack", {"Topic": {"Type": "AWS::SNS::Topic", "Properties": {}}})
    path = tmp_path / "template.json"
    path.write_text(f'{{"Resources": {{"Queue": {as_json(QUEUE)}}}}}')
    stacks = cloud.stacks()

    found = differences(stacks, stacks.all(), [NewTemplate(same, path)], rest=lambda _: None)

    assert [(each.name, each.is_empty, each.is_removed) for each in found] == [
        (same, True, False),
        (gone, False, True),
    ]


def test_a_template_that_is_refused_says_why(tmp_path):
    """Given a template that CloudFormation does not take, then the error names stack and reason."""
    asked = []

    class Refusing:
        """CloudFormation, which finds a mistake when it compares."""

        def create_change_set(self, **request):
            asked.append(request["ChangeSetName"])

        def describe_change_set(self, **_):
            return {
                "Status": "FAILED",
                "StatusReason": "Unresolved resource dependencies [Nothing]",
            }

        def delete_change_set(self, **request):
            asked.append(f"delete {request['ChangeSetName']}")

    path = tmp_path / "template.json"
    path.write_text("{}")
    deployed = {"name": DeployedStack("name", "CREATE_COMPLETE", "")}

    with pytest.raises(DeploymentFailed, match=r"stack name.*Nothing"):
        differences(
            SimpleNamespace(client=Refusing()),
            deployed,
            [NewTemplate("name", path)],
            rest=lambda _: None,
        )

    assert asked[0].startswith("delete ")
    assert asked[-1] == asked[0]


def test_stacks_of_another_instance_are_not_this_ones(cloud):
    """Given ids of which one begins with the other, then each has its own stacks."""
    mine = cloud.make_stack("CoreStack", {"Queue": QUEUE})
    longer = f"{cloud.instance_id}-2"
    cloud.make_stack("2-CoreStack", {"Queue": QUEUE}, owner=f"aws://{longer}")
    taken = cloud.make_stack("QueryStack", {"Queue": QUEUE}, owner="aws://another")
    stacks = cloud.stacks()

    found = stacks.all()

    assert set(found) == {mine, taken}
    (told,) = stacks.owner_failures(found.values())
    assert taken in told
    assert "aws://another" in told


def test_what_a_stack_would_delete_is_read_from_its_template():
    """Given YAML as the CDK writes it, or JSON, then tables and buckets without Retain are told."""
    yaml = (
        "Description: x\nResources:\n  Lost:\n    Type: AWS::S3::Bucket\n    Properties:\n"
        "      Type: no\n    DeletionPolicy: Delete\n  Kept:\n    Type: AWS::DynamoDB::Table\n"
        "    DeletionPolicy: RetainExceptOnCreate\n  Queue:\n    Type: AWS::SQS::Queue\nOutputs:\n"
        "  Bucket:\n    Type: AWS::S3::Bucket\n"
    )

    assert unkept(yaml) == ["Lost"]
    assert unkept({"Resources": {"A": table("a"), "B": table("b", "Retain"), "Q": QUEUE}}) == ["A"]


def test_images_and_processors_are_read_from_templates():
    """Given functions and tasks, then their images, processors and most vCPUs are known."""
    worker = "123456789012.dkr.ecr.eu-west-2.amazonaws.com/sleeper/worker:1"
    task = {
        "Type": "AWS::ECS::TaskDefinition",
        "Properties": {
            "Family": "f",
            "Cpu": "2048",
            "RuntimePlatform": {"CpuArchitecture": "ARM64"},
            "ContainerDefinitions": [{"Image": worker}],
        },
    }
    starter = {
        "Type": "AWS::Lambda::Function",
        "Properties": {
            "FunctionName": "starter",
            "ReservedConcurrentExecutions": 1,
            "Code": {"ImageUri": worker},
            "Environment": {
                "Variables": {"SLEEPER_TASK_INGEST": "f", "SLEEPER_WORKERS_MAX_INGEST": "3"}
            },
        },
    }
    templates = [{"Resources": {"T": task}}, {"Resources": {"S": starter}}]

    assert needed_images(templates) == {
        worker: ImageNeeds(functions=frozenset({"amd64"}), tasks=frozenset({"arm64"}))
    }
    assert reserved_concurrency(templates) == {"starter": 1}
    assert most_vcpus(templates) == 6
