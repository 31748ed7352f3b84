"""Tasks of ECS are counted page by page and started ten at a time; botocore checks each request."""

from __future__ import annotations

import boto3
import pytest
from botocore.stub import ANY, Stubber

from sleeper.errors import StorageFailed, StorageReadOnly
from sleeper.storage.aws.ecs_tasks import EcsTasks, TaskPlace

PLACE = TaskPlace(
    cluster="demo",
    subnets=("subnet-1", "subnet-2"),
    security_groups=("sg-1",),
    has_public_ip=False,
    capacity=("FARGATE_SPOT", "FARGATE"),
    platform_version="1.4.0",
)
FAMILY = "sleeper-demo-ingest"


@pytest.fixture
def ecs():
    """A stand-in for ECS that checks requests against Amazon's model."""
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
    client = boto3.client("ecs", region_name="us-east-1", **keys)
    with Stubber(client) as stub:
        stub.boto3 = client
        yield stub
        stub.assert_no_pending_responses()


@pytest.fixture
def tasks(ecs):
    return EcsTasks(lambda: ecs.boto3, PLACE, new_id=lambda: "id")


def expect_run(ecs, count, capacity="FARGATE_SPOT", *, started=None, failures=()):
    """Expect a call that starts tasks, and answer it."""
    made = count - len(failures) if started is None else started
    ecs.add_response(
        "run_task",
        {"tasks": [{"taskArn": f"arn:{n}"} for n in range(made)], "failures": list(failures)},
        {
            "cluster": "demo",
            "taskDefinition": FAMILY,
            "count": count,
            "capacityProviderStrategy": [{"capacityProvider": capacity, "weight": 1}],
            "networkConfiguration": {
                "awsvpcConfiguration": {
                    "subnets": ["subnet-1", "subnet-2"],
                    "securityGroups": ["sg-1"],
                    "assignPublicIp": "DISABLED",
                }
            },
            "clientToken": "id",
            "propagateTags": "TASK_DEFINITION",
            "platformVersion": "1.4.0",
        },
    )


def test_tasks_are_counted_over_all_pages_and_those_that_start_are_told(ecs, tasks):
    """Given 150 tasks on two pages, of which two are starting, then all count as running."""
    arns = [f"arn:aws:ecs:us-east-1:1:task/{n}" for n in range(150)]
    asked = {"cluster": "demo", "family": FAMILY, "desiredStatus": "RUNNING"}
    ecs.add_response("list_tasks", {"taskArns": arns[:100], "nextToken": "more"}, asked)
    ecs.add_response("list_tasks", {"taskArns": arns[100:]}, {**asked, "nextToken": "more"})
    states = ["PENDING", "PROVISIONING", *["RUNNING"] * 98]
    ecs.add_response(
        "describe_tasks",
        {"tasks": [{"lastStatus": state} for state in states]},
        {"cluster": "demo", "tasks": arns[:100]},
    )
    ecs.add_response("describe_tasks", {"tasks": []}, {"cluster": "demo", "tasks": arns[100:]})

    assert tasks.running(FAMILY) == (150, 2)


def test_no_task_is_described_where_there_is_none(ecs, tasks):
    """One request, and no more."""
    ecs.add_response("list_tasks", {"taskArns": []}, ANY_LIST)

    assert tasks.running(FAMILY) == (0, 0)


ANY_LIST = {"cluster": ANY, "family": ANY, "desiredStatus": ANY}


def test_tasks_are_started_ten_at_a_time(ecs, tasks):
    """Amazon takes no more in a call."""
    expect_run(ecs, 10)
    expect_run(ecs, 10)
    expect_run(ecs, 3)

    assert tasks.start(FAMILY, 23) == 23


def test_where_spot_has_no_room_the_others_are_started_on_demand(ecs, tasks, caplog):
    """Given failures of two of three, then two are started with the second provider."""
    no_room = {"arn": "arn", "reason": "RESOURCE:CPU", "detail": "none"}
    expect_run(ecs, 3, failures=[no_room, no_room])
    expect_run(ecs, 2, "FARGATE")

    assert tasks.start(FAMILY, 3) == 3
    assert (
        "2 tasks of sleeper-demo-ingest were not started: FARGATE_SPOT: RESOURCE:CPU" in caplog.text
    )


def test_a_refusal_for_lack_of_capacity_is_no_room_too(ecs, tasks):
    """Fargate says so by an error, not by failures."""
    ecs.add_client_error(
        "run_task",
        "ClientException",
        "Capacity is unavailable at this time. Please try again later",
    )
    expect_run(ecs, 1, "FARGATE")

    assert tasks.start(FAMILY, 1) == 1


def test_fewer_than_were_wanted_may_be_started(ecs, tasks):
    """Given room for one of three with either provider, then one is better than none."""
    expect_run(ecs, 3, started=1, failures=[{"reason": "RESOURCE:CPU"}] * 2)
    expect_run(ecs, 2, "FARGATE", started=0)

    assert tasks.start(FAMILY, 3) == 1


def test_where_none_can_be_started_every_reason_is_told(ecs, tasks):
    """The message names both providers."""
    expect_run(ecs, 1, failures=[{"reason": "RESOURCE:CPU"}])
    expect_run(ecs, 1, "FARGATE", failures=[{"reason": "AGENT", "detail": "gone"}])

    with pytest.raises(StorageFailed, match="FARGATE_SPOT: RESOURCE:CPU; FARGATE: AGENT, gone"):
        tasks.start(FAMILY, 1)


@pytest.mark.parametrize(
    ("operation", "call"),
    [
        ("list_tasks", lambda tasks: tasks.running(FAMILY)),
        ("run_task", lambda tasks: tasks.start(FAMILY, 1)),
    ],
)
def test_too_many_calls_are_told_as_such(ecs, tasks, operation, call):
    """Given throttling after boto3's own attempts, then the next look tries again."""
    ecs.add_client_error(operation, "ThrottlingException", "Rate exceeded")

    with pytest.raises(StorageFailed, match="too many calls"):
        call(tasks)


def test_a_role_that_may_not_start_tasks_is_told_the_permission(ecs, tasks):
    """The message names it."""
    ecs.add_client_error("run_task", "AccessDeniedException", "not authorized")

    with pytest.raises(StorageReadOnly, match="ecs:RunTask"):
        tasks.start(FAMILY, 1)
