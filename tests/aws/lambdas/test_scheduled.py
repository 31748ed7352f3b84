"""What a schedule calls: tables are kept, and workers are started, where there is something to do."""

from __future__ import annotations

import json

import pytest

from sleeper.errors import BadRequest, StorageFailed
from sleeper.interfaces.lambdas import handlers, worker_tasks
from sleeper.model.jobs.kinds import QueueName
from sleeper.tables.table import Table
from tests.aws.lambdas.functions import (
    Context,
    aws_endpoint,
    bucket,
    client,
    functions_of,
    instance,
    s3_credentials,
    s3_server,
    tables_queue,
)
from tests.contracts.jobs.lambda_records import records_from

__all__ = [
    "aws_endpoint",
    "bucket",
    "client",
    "functions_of",
    "instance",
    "s3_credentials",
    "s3_server",
    "tables_queue",
]


@pytest.fixture
def run(tables_queue, aws_endpoint, client):
    """Calls the function with what waits, and deletes what did not fail; returns the answer."""

    def called():
        records = records_from(tables_queue, endpoint=aws_endpoint)
        answer = handlers.run_tables({"Records": records}, Context())
        failed = {each["itemIdentifier"] for each in answer["batchItemFailures"]}
        for record in records:
            if record["messageId"] not in failed:
                receipt = record["receiptHandle"]
                client("sqs").delete_message(QueueUrl=tables_queue, ReceiptHandle=receipt)
        return [json.loads(record["body"]) for record in records], len(failed)

    return called


def test_a_table_is_split_and_compacted_and_its_garbage_is_collected(instance, run):
    """Given a large leaf of many files, then schedules and one queue keep the table (INS-13)."""
    table = instance.table("numbers")
    table.set_properties(
        {
            "sleeper.table.partition.splitting.threshold": 10,
            "sleeper.table.compaction.strategy.class": "BasicCompactionStrategy",
            "sleeper.table.compaction.files.batch.size": 2,
        }
    )
    for n in range(4):
        table.ingest([{"id": f"{n}{m:02}", "n": m} for m in range(5)])

    for operation in ("split", "compact", "collect"):
        asked = handlers.trigger_tables({"operation": operation}, Context())
        assert asked == {"tables": ["numbers"]}
        [message], failed = run()
        assert (message["operation"], failed) == (operation, 0)
        assert message["tableId"] == table.table_id

    files = table.report_files()
    assert files.leaf_partitions > 1
    assert files.references < 8
    assert table.claims() == ()
    assert table.query().count() == 20


def test_an_operation_that_fails_comes_again_and_others_of_its_table_wait(
    instance, run, monkeypatch, caplog
):
    """Given a storage that fails, then the messages of one table stay in order."""
    handlers.trigger_tables({"operation": "split"}, Context())
    handlers.trigger_tables({"operation": "collect"}, Context())
    with monkeypatch.context() as broken:
        broken.setattr(Table, "split_partitions", _no_answer)
        messages, failed = run()

    assert [each["operation"] for each in messages] == ["split", "collect"]
    assert failed == 2
    assert "numbers: split failed: no answer" in caplog.text


def _no_answer(*_):
    raise StorageFailed("no answer")


def test_a_message_that_asks_for_nothing_does_not_come_again(
    instance, run, tables_queue, client, caplog
):
    """Given text in the queue, then it is logged."""
    sqs = client("sqs")
    sqs.send_message(
        QueueUrl=tables_queue, MessageBody='"x"', MessageGroupId="g", MessageDeduplicationId="d"
    )

    _, failed = run()

    assert failed == 0
    assert "a message is left out: a message asks for no operation" in caplog.text


def test_figures_are_printed_as_cloudwatch_reads_them(instance, run, capsys):
    """Given rows, then one line of embedded metrics for the table (ADM-11)."""
    instance.table("numbers").ingest([{"id": "a", "n": 1}, {"id": "b", "n": 2}])
    handlers.trigger_tables({"operation": "measure"}, Context())

    run()

    figures = json.loads(capsys.readouterr().out)
    [metrics] = figures["_aws"]["CloudWatchMetrics"]
    assert metrics["Namespace"] == "Sleeper"
    assert metrics["Dimensions"] == [["instanceId", "tableName"]]
    assert {each["Name"]: figures[each["Name"]] for each in metrics["Metrics"]} == {
        "NumberOfFilesWithReferences": 1,
        "RowCount": 2,
        "PartitionCount": 1,
        "LeafPartitionCount": 1,
        "AverageFileReferencesPerPartition": 1,
    }
    assert (figures["instanceId"], figures["tableName"]) == (instance.instance_id, "numbers")


def test_an_operation_that_there_is_not_is_refused(instance, tables_queue):
    """The schedule is wrong: it says which there are."""
    with pytest.raises(BadRequest, match="operation is 'tidy', but it must be one of split"):
        handlers.trigger_tables({"operation": "tidy"}, Context())


class StandInEcs:
    """ECS as far as a look uses it."""

    def __init__(self):
        self.started = []

    def list_tasks(self, **request):
        assert request["desiredStatus"] == "RUNNING"
        return {"taskArns": [family for family, _ in self.started if family == request["family"]]}

    def describe_tasks(self, *, cluster, tasks):
        return {"tasks": [{"lastStatus": "RUNNING"} for _ in tasks]}

    def run_task(self, **request):
        self.started += [(request["taskDefinition"], request)] * request["count"]
        return {"tasks": [{}] * request["count"], "failures": []}


@pytest.fixture
def ecs(monkeypatch):
    """ECS, and the environment of the function that starts tasks."""
    made = StandInEcs()
    monkeypatch.setattr(worker_tasks, "aws_client", lambda service: made)
    monkeypatch.setattr(worker_tasks, "_warm", {})
    for name, value in {
        "CLUSTER": "demo",
        "SUBNETS": "subnet-1, subnet-2",
        "TASK_INGEST": "demo-ingest",
        "TASK_COMPACTION": "demo-compaction",
        "CAPACITY": "FARGATE_SPOT,FARGATE",
    }.items():
        monkeypatch.setenv(f"SLEEPER_{name}", value)
    return made


def test_tasks_are_started_for_what_waits(instance, ecs, monkeypatch):
    """Given two jobs and a limit of one, then one task, and a look later none (ING-15)."""
    event = {"kinds": ["ingest", "compaction"]}
    assert handlers.start_workers(event, Context()) == {}
    for n in range(2):
        instance.jobs.send_message(QueueName.INGEST, str(n))
    monkeypatch.setenv("SLEEPER_WORKERS_MAX_INGEST", "1")

    assert handlers.start_workers(event, Context()) == {"ingest": 1}
    assert handlers.start_workers(event, Context()) == {}

    [(family, request)] = ecs.started
    assert family == "demo-ingest"
    assert request["capacityProviderStrategy"] == [
        {"capacityProvider": "FARGATE_SPOT", "weight": 1}
    ]
    assert request["networkConfiguration"]["awsvpcConfiguration"] == {
        "subnets": ["subnet-1", "subnet-2"],
        "assignPublicIp": "ENABLED",
    }


def test_the_limit_of_the_instance_holds_too(instance, ecs, monkeypatch):
    """Given three jobs, a limit of two in the properties and of nine in the environment."""
    instance.set_properties({"sleeper.ingest.max.concurrent.tasks": 2})
    for n in range(3):
        instance.jobs.send_message(QueueName.INGEST, str(n))
    monkeypatch.setenv("SLEEPER_WORKERS_MAX_INGEST", "9")

    assert handlers.start_workers({"kinds": ["ingest"]}, Context()) == {"ingest": 2}


def test_tasks_are_started_for_compactions_that_tables_want(instance, ecs):
    """Given files to merge, then there is a worker for each job."""
    table = instance.table("numbers")
    table.set_properties(
        {
            "sleeper.table.compaction.strategy.class": "BasicCompactionStrategy",
            "sleeper.table.compaction.files.batch.size": 2,
        }
    )
    for n in range(4):
        table.ingest([{"id": str(n), "n": n}])

    assert handlers.start_workers({"kinds": ["compaction"]}, Context()) == {"compaction": 2}


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("SLEEPER_CLUSTER", "", "SLEEPER_CLUSTER is not set"),
        ("SLEEPER_SUBNETS", " ", "SLEEPER_SUBNETS is not set"),
        ("SLEEPER_CAPACITY", "SPOT", "SLEEPER_CAPACITY is 'SPOT'"),
        ("SLEEPER_PUBLIC_IP", "yes", "SLEEPER_PUBLIC_IP is 'yes'"),
        ("SLEEPER_WORKERS_MAX_INGEST", "-1", "SLEEPER_WORKERS_MAX_INGEST is '-1'"),
    ],
)
def test_an_environment_that_is_wrong_is_told(instance, ecs, monkeypatch, name, value, why):
    """Each variable by its name."""
    monkeypatch.setenv(name, value)

    with pytest.raises(BadRequest, match=why):
        handlers.start_workers({"kinds": ["ingest"]}, Context())


def test_a_kind_without_a_task_definition_fails_when_its_jobs_wait(instance, ecs, monkeypatch):
    """The message names the variable; other kinds are started."""
    monkeypatch.delenv("SLEEPER_TASK_INGEST")
    instance.jobs.send_message(QueueName.INGEST, "1")

    with pytest.raises(StorageFailed, match="SLEEPER_TASK_INGEST is not set"):
        handlers.start_workers({"kinds": ["ingest", "compaction"]}, Context())


@pytest.mark.parametrize("kinds", [None, [], "ingest", ["ingest", "tidy"], [["ingest"]]])
def test_kinds_that_there_are_not_are_refused(instance, ecs, kinds):
    """The message lists those that there are."""
    with pytest.raises(BadRequest, match="must be a list of ingest, bulk-import"):
        handlers.start_workers({"kinds": kinds}, Context())
