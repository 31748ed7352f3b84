"""The function that looks at queues prints a metric while something is wrong, and nothing else."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from sleeper.errors import BadRequest, StorageFailed
from sleeper.interfaces.lambdas import handlers
from tests.aws.lambdas.functions import Context
from tests.deploy.flow.emulator import account, cloud, s3_credentials

__all__ = ["account", "cloud", "s3_credentials"]


@pytest.fixture
def queues(cloud, monkeypatch):
    """The URLs of two queues and their dead letters, which the function finds, by their ends."""
    sqs, names = cloud.client("sqs"), {}
    for end in ("ingest", "query", "ingest-dead", "query-dead"):
        names[end] = f"{cloud.instance_id}-{end}"
    urls = {end: sqs.create_queue(QueueName=name)["QueueUrl"] for end, name in names.items()}
    monkeypatch.setenv("SLEEPER_QUEUES_URL", urls["ingest"].rpartition("/")[0])
    monkeypatch.setenv("SLEEPER_QUEUES", f"{names['ingest']},{names['query']}")
    monkeypatch.setenv("SLEEPER_DEAD_LETTERS", f"{names['ingest-dead']},{names['query-dead']}")
    monkeypatch.setenv("SLEEPER_ALARMS_NAMESPACE", "Sleeper/demo")
    return urls


@pytest.fixture
def ages(cloud):
    """Tells CloudWatch how old the oldest message of a queue is, as SQS does."""

    def told(end, seconds, *, minutes_ago=1):
        at = datetime.now(UTC) - timedelta(minutes=minutes_ago)
        cloud.client("cloudwatch").put_metric_data(
            Namespace="AWS/SQS",
            MetricData=[
                {
                    "MetricName": "ApproximateAgeOfOldestMessage",
                    "Dimensions": [{"Name": "QueueName", "Value": f"{cloud.instance_id}-{end}"}],
                    "Timestamp": at,
                    "Value": seconds,
                }
            ],
        )

    return told


def printed(capsys):
    """The documents in the log of the function."""
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_nothing_is_printed_while_nothing_is_wrong(queues, ages, capsys):
    """Given empty queues, then there is no metric to pay for, whatever CloudWatch remembers."""
    ages("ingest", 9_000)

    answer = handlers.watch_queues({}, Context())

    assert answer == {"deadLetters": {}, "oldestSeconds": {}}
    assert printed(capsys) == []


def test_dead_letters_of_all_queues_are_one_number(cloud, queues, capsys):
    """Given dead letters of two queues, then their sum is a metric, and the log names the queues."""
    sqs = cloud.client("sqs")
    for end, count in (("ingest-dead", 2), ("query-dead", 1)):
        for n in range(count):
            sqs.send_message(QueueUrl=queues[end], MessageBody=str(n))

    handlers.watch_queues({}, Context())

    (document,) = printed(capsys)
    (metrics,) = document["_aws"]["CloudWatchMetrics"]
    assert metrics == {
        "Namespace": "Sleeper/demo",
        "Dimensions": [[]],
        "Metrics": [{"Name": "DeadLetters"}],
    }
    assert document["DeadLetters"] == 3
    assert document["queues"] == {
        f"{cloud.instance_id}-ingest-dead": 2,
        f"{cloud.instance_id}-query-dead": 1,
    }
    age_ms = datetime.now(UTC).timestamp() * 1000 - document["_aws"]["Timestamp"]
    assert 0 <= age_ms < 60_000


def test_the_longest_wait_of_all_queues_is_one_number(cloud, queues, ages, capsys):
    """Given two queues whose messages wait, then the longer wait counts, by the newest figures."""
    for end in ("ingest", "query"):
        cloud.client("sqs").send_message(QueueUrl=queues[end], MessageBody="1")
    ages("ingest", 5_000, minutes_ago=12)
    ages("ingest", 40)
    ages("query", 4_000)

    answer = handlers.watch_queues({}, Context())

    (document,) = printed(capsys)
    assert document["OldestMessageSeconds"] == 4_000
    assert "DeadLetters" not in document
    assert answer["oldestSeconds"] == {
        f"{cloud.instance_id}-ingest": 40,
        f"{cloud.instance_id}-query": 4_000,
    }


def test_tasks_are_counted_where_a_cluster_is_named(cloud, queues, capsys, monkeypatch):
    """Given two tasks of a cluster, and one of another, then a metric has two."""
    ecs = cloud.client("ecs")
    for end in ("workers", "others"):
        ecs.create_cluster(clusterName=f"{cloud.instance_id}-{end}")
    ecs.register_task_definition(
        family=cloud.instance_id,
        requiresCompatibilities=["FARGATE"],
        networkMode="awsvpc",
        cpu="256",
        memory="512",
        containerDefinitions=[{"name": "worker", "image": "none"}],
    )
    network = {"awsvpcConfiguration": {"subnets": ["subnet-0a1b2c3d"]}}
    for end, count in (("workers", 2), ("others", 1)):
        ecs.run_task(
            cluster=f"{cloud.instance_id}-{end}",
            taskDefinition=cloud.instance_id,
            count=count,
            networkConfiguration=network,
        )
    monkeypatch.setenv("SLEEPER_CLUSTER", f"{cloud.instance_id}-workers")

    handlers.watch_queues({}, Context())

    (document,) = printed(capsys)
    assert document["RunningTasks"] == 2


def test_a_message_that_cloudwatch_does_not_know_yet_is_young(cloud, queues, capsys):
    """Given a message of this moment, then nothing is printed."""
    cloud.client("sqs").send_message(QueueUrl=queues["ingest"], MessageBody="1")

    handlers.watch_queues({}, Context())

    assert printed(capsys) == []


def test_a_queue_that_cannot_be_looked_at_hides_no_other(cloud, queues, capsys, monkeypatch):
    """Given a queue that is gone, then the others are printed, and the call fails."""
    cloud.client("sqs").send_message(QueueUrl=queues["query-dead"], MessageBody="1")
    monkeypatch.setenv("SLEEPER_DEAD_LETTERS", f"gone,{cloud.instance_id}-query-dead")

    with pytest.raises(StorageFailed, match="1 queues cannot be looked at: gone"):
        handlers.watch_queues({}, Context())

    (document,) = printed(capsys)
    assert document["DeadLetters"] == 1


@pytest.mark.parametrize("name", ["QUEUES_URL", "QUEUES", "DEAD_LETTERS", "ALARMS_NAMESPACE"])
def test_a_variable_that_is_missing_is_named(queues, monkeypatch, name):
    """Given an environment without one, then the error says which."""
    monkeypatch.delenv(f"SLEEPER_{name}")

    with pytest.raises(BadRequest, match=f"SLEEPER_{name} is not set"):
        handlers.watch_queues({}, Context())
