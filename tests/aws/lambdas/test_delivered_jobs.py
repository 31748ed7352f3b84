"""Functions run the jobs in messages that Lambda delivers, each once, and say what failed."""

from __future__ import annotations

import json
import logging
import time

import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.errors import BadRequest, StorageFailed
from sleeper.interfaces.lambdas import handlers, warm_instance
from sleeper.jobs.job_results import JobResults
from sleeper.model.jobs.kinds import QueueName
from sleeper.model.jobs.messages import NewMessage
from sleeper.model.jobs.query_statuses import QueryState
from sleeper.model.jobs.statuses import JobState
from sleeper.tables.table import Table
from sleeper.workers.job import JobDeferred
from sleeper.workers.kinds.bulk_import import BulkImportWork
from tests.aws.lambdas.functions import (
    Context,
    aws_endpoint,
    bucket,
    call,
    client,
    functions_of,
    instance,
    s3_credentials,
    s3_server,
    uploaded,
)
from tests.contracts.s3_server import REGION
from tests.stories.test_ingest_jobs import work, written

__all__ = [
    "aws_endpoint",
    "bucket",
    "call",
    "client",
    "functions_of",
    "instance",
    "s3_credentials",
    "s3_server",
]


def test_a_query_from_the_queue_has_its_rows_in_s3(instance, call, client, tmp_path):
    """Given rows and a query, when the function is called, then they are where the tracker says."""
    instance.table("numbers").ingest([{"id": "a", "n": 1}, {"id": "b", "n": 2}])
    instance.jobs.submit_query("numbers", query_id="q", key="b")

    _, failed = call(handlers.query, QueueName.QUERY)

    assert failed == []
    status = instance.jobs.query("q")
    assert status.state is QueryState.COMPLETED
    (location,) = status.locations
    bucket, _, key = location.removeprefix("s3://").partition("/")
    client("s3").download_file(bucket, key, str(tmp_path / "rows.parquet"))
    assert pq.read_table(tmp_path / "rows.parquet").to_pylist() == [{"id": "b", "n": 2}]
    assert list(instance.jobs.tasks("query")) == []


def test_of_a_batch_one_fails_and_the_others_are_done(instance, call, monkeypatch):
    """Given a storage that fails one query, then Lambda keeps that message alone, with a delay."""
    write = JobResults.write_query

    def fails_once(self, query_id, *rest):
        if query_id == "bad":
            raise StorageFailed("no answer")
        return write(self, query_id, *rest)

    monkeypatch.setattr(JobResults, "write_query", fails_once)
    for query_id in ("one", "bad", "two"):
        instance.jobs.submit_query("numbers", query_id=query_id, key="a")

    received, failed = call(handlers.query, QueueName.QUERY)

    assert [json.loads(body)["queryId"] for body in failed] == ["bad"]
    assert len(received) == 3
    assert instance.jobs.query("one").state is QueryState.COMPLETED
    assert instance.jobs.query("two").state is QueryState.COMPLETED
    depth = instance.jobs.stores.queue(QueueName.QUERY).depth()
    assert (depth.ready, depth.hidden) == (0, 1)


def test_a_query_whose_message_comes_twice_is_answered_once(instance, call):
    """Given a process that died before Lambda deleted the message, then the rows are not two."""
    instance.table("numbers").ingest([{"id": "a", "n": 1}])
    instance.jobs.submit_query("numbers", query_id="twice", key="a")
    call(handlers.query, QueueName.QUERY, delete=False)
    instance.jobs.submit_query("numbers", query_id="twice", key="a")

    call(handlers.query, QueueName.QUERY)

    assert instance.jobs.query("twice").rows == 1


@pytest.mark.parametrize("body", ["not JSON", "[]", '{"queryId": 7}'])
def test_a_query_that_is_none_is_rejected_and_not_delivered_again(instance, call, body):
    """Given any text, then the tracker has the reason, and nothing fails."""
    instance.jobs.send_message(QueueName.QUERY, body)

    received, failed = call(handlers.query, QueueName.QUERY)

    assert (received, failed) == ([body], [])


def test_a_query_of_a_table_that_was_deleted_meanwhile_is_rejected(instance, call, caplog):
    """Given a process that had the table open, then the message does not come again."""
    instance.jobs.submit_query("numbers", query_id="before", key="a")
    call(handlers.query, QueueName.QUERY)
    instance.jobs.submit_query("numbers", query_id="after", key="a")
    table_id = instance.table("numbers").table_id
    instance.delete_table("numbers")

    _, failed = call(handlers.query, QueueName.QUERY)

    assert failed == []
    reason = f'Table could not be found with ID: "{table_id}"'
    assert f"rejected query job after: {reason}" in caplog.text


def test_the_committer_commits_what_workers_ask_for(instance, call, client, tmp_path):
    """Given two workers, when the function is called, then their rows are seen (ING-13)."""
    instance.table("numbers").set_properties(
        {"sleeper.table.statestore.commit.async.enabled": "true"}
    )
    jobs = [
        instance.jobs.submit_ingest("numbers", written(tmp_path / f"{n}.parquet", n))
        for n in (1, 2)
    ]
    work(instance)

    received, failed = call(handlers.commit, QueueName.COMMIT)

    assert (len(received), failed) == (2, [])
    assert [instance.jobs.job(each).state for each in jobs] == [JobState.FINISHED] * 2
    assert instance.table("numbers").query().to_arrow()["n"].to_pylist() == [1, 2]


def test_requests_of_a_table_that_cannot_be_committed_to_come_again_together(
    instance, call, tmp_path, monkeypatch
):
    """Given a log without an answer, then Lambda keeps all of them, and a later call commits."""
    instance.table("numbers").set_properties(
        {"sleeper.table.statestore.commit.async.enabled": "true"}
    )
    for n in (1, 2):
        instance.jobs.submit_ingest("numbers", written(tmp_path / f"{n}.parquet", n))
    work(instance)
    with monkeypatch.context() as broken:
        broken.setattr(Table, "commit_requests", _no_answer)
        received, failed = call(handlers.commit, QueueName.COMMIT)
        assert failed == received

    later = []
    while len(later) < 2:
        later += call(handlers.commit, QueueName.COMMIT)[0]

    assert instance.table("numbers").query().to_arrow()["n"].to_pylist() == [1, 2]


def _no_answer(*_, **__):
    raise StorageFailed("no answer")


def test_a_request_that_is_none_becomes_a_dead_letter(instance, call):
    """Given text in the commit queue, then it is buried with its reason, and blocks nobody."""
    instance.jobs.stores.queue(QueueName.COMMIT).send([NewMessage(body="text", group="numbers")])

    _, failed = call(handlers.commit, QueueName.COMMIT)

    assert failed == []
    [letter] = instance.jobs.dead_letters("commit")
    assert letter.body == "text"
    assert letter.reason


def test_files_go_through_the_batcher_to_a_job(instance, call, client, tmp_path):
    """Given a file that was submitted, then two functions make a job of it (BAT-1, BAT-4)."""
    instance.table("numbers").set_properties(
        {
            "sleeper.table.ingest.batcher.ingest.queue": "standard_ingest",
            "sleeper.table.ingest.batcher.job.min.size": "0",
        }
    )
    path = uploaded(client, instance, written(tmp_path / "1.parquet", 1), "in/1.parquet")
    submission = {"tableName": "numbers", "files": [path]}
    instance.jobs.send_message(QueueName.BATCHER, json.dumps(submission))

    assert call(handlers.submit_to_batcher, QueueName.BATCHER)[1] == []
    made = handlers.create_batches({}, Context())
    again = handlers.create_batches({}, Context())

    assert made == {"jobs": 1, "files": 1}
    assert again == {"jobs": 0, "files": 0}
    assert work(instance) == 1
    assert instance.table("numbers").query(key="0001").to_pylist() == [{"id": "0001", "n": 1}]


def test_nothing_is_begun_while_the_instance_is_paused(instance, call, client, tmp_path):
    """Given a pause, then messages come again in a minute, uncounted; queries go on."""
    path = uploaded(client, instance, written(tmp_path / "1.parquet", 1), "in/1.parquet")
    submission = json.dumps({"tableName": "numbers", "files": [path]})
    instance.jobs.send_message(QueueName.BATCHER, submission)
    instance.jobs.submit_query("numbers", query_id="q", key="a")
    instance.pause_switch.pause()

    call(handlers.submit_to_batcher, QueueName.BATCHER)
    call(handlers.query, QueueName.QUERY)

    assert instance.jobs.stores.batcher.pending() == []
    assert handlers.create_batches({}, Context()) == {"jobs": 0, "files": 0}
    assert instance.jobs.query("q").state is QueryState.COMPLETED
    depth = instance.jobs.stores.queue(QueueName.BATCHER).depth()
    assert (depth.ready, depth.hidden, depth.dead) == (0, 1, 0)


def test_no_message_is_begun_when_the_time_is_over(instance, call):
    """Given a call that has no time left, then all goes back at once, and no delivery counts."""
    instance.jobs.submit_query("numbers", query_id="q", key="a")

    call(handlers.query, QueueName.QUERY, whole_s=0.0)

    [again] = instance.jobs.stores.queue(QueueName.QUERY).receive()
    assert again.receives == 1


def test_changed_properties_are_used_by_a_process_that_is_warm(instance, call, monkeypatch, caplog):
    """Given a look once a minute, then a change is seen at the first call after it (INS-10)."""
    monkeypatch.setattr(warm_instance, "_LOOK_S", 0.0)
    first = warm_instance.warm_instance()
    sleeper.connect(instance.url).set_properties({"sleeper.jobs.receives.max": 7})

    with caplog.at_level(logging.INFO, "sleeper"):
        second = warm_instance.warm_instance()

    assert first.properties.jobs.receives_max == 3
    assert second.properties.jobs.receives_max == 7
    assert warm_instance.warm_instance() is second


def test_a_function_that_is_set_up_wrongly_says_what_is_wrong(instance, monkeypatch, tmp_path):
    """Given no instance, no queue, another event, or jobs that are not in SQS."""
    with pytest.raises(BadRequest, match="SLEEPER_QUEUE is not set"):
        handlers.start_bulk_imports({"Records": []}, Context())
    monkeypatch.setenv("SLEEPER_QUEUE", "ingest")
    with pytest.raises(BadRequest, match="SLEEPER_QUEUE is 'ingest', but it must be one of bulk-"):
        handlers.start_bulk_imports({"Records": []}, Context())
    with pytest.raises(BadRequest, match="the event has no Records"):
        handlers.query({"detail": {}}, Context())
    elsewhere = sleeper.connect(tmp_path / "instance", create=True)
    monkeypatch.setenv("SLEEPER_INSTANCE", elsewhere.url)
    with pytest.raises(BadRequest, match="not in SQS"):
        handlers.query({"Records": []}, Context())
    monkeypatch.setenv("SLEEPER_INSTANCE", " ")
    with pytest.raises(BadRequest, match="SLEEPER_INSTANCE is not set"):
        handlers.query({"Records": []}, Context())


@pytest.fixture
def bulk_import(instance, client, monkeypatch, tmp_path):
    """A bulk import in the queue of EMR clusters, which the instance's properties describe."""
    monkeypatch.setenv("SLEEPER_QUEUE", QueueName.BULK_IMPORT_EMR)
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)  # Lambda sets it
    instance.set_properties(
        {
            "sleeper.bulk.import.emr.role.name": "emr",
            "sleeper.bulk.import.emr.ec2.role.name": "machines",
            "sleeper.bulk.import.environment": "s3://jars/environment",
            "sleeper.subnets": "subnet-0a1b2c3d",
        }
    )
    path = uploaded(client, instance, written(tmp_path / "1.parquet", 1), "in/1.parquet")
    job = {"id": "june", "tableName": "numbers", "files": [path]}
    instance.jobs.send_message(QueueName.BULK_IMPORT_EMR, json.dumps(job))
    return job["id"]


def test_the_driver_of_a_bulk_import_is_started_on_its_platform(
    instance, call, client, bulk_import
):
    """Given a job for EMR, then a cluster is asked for; the driver tells the rest (BLK-3)."""
    before = len(client("emr").list_clusters()["Clusters"])

    _, failed = call(handlers.start_bulk_imports, QueueName.BULK_IMPORT_EMR)

    assert failed == []
    assert len(client("emr").list_clusters()["Clusters"]) == before + 1
    assert instance.jobs.job(bulk_import).state is JobState.ACCEPTED


def test_a_bulk_import_waits_for_room_uncounted(instance, call, bulk_import, monkeypatch):
    """Given a cluster that is full, then the job comes again later, and is no dead letter."""

    def is_full(*_):
        raise JobDeferred("it is full", 1)

    monkeypatch.setattr(BulkImportWork, "run", is_full)
    for _ in range(4):
        assert call(handlers.start_bulk_imports, QueueName.BULK_IMPORT_EMR)[1] == []
        time.sleep(2)

    [message] = instance.jobs.stores.queue(QueueName.BULK_IMPORT_EMR).receive()
    assert message.receives == 1
