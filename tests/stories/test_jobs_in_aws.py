"""Jobs of an instance in a bucket wait in SQS, and DynamoDB remembers what became of them."""

from __future__ import annotations

import json
import logging
import uuid

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.errors import PropertiesInvalid
from sleeper.model.jobs.statuses import JobState
from tests.contracts.s3_server import REGION, aws_endpoint, bucket, s3_credentials, s3_server
from tests.stories.test_ingest_jobs import SCHEMA, work, written
from tests.unit.interfaces.command_line import sleeper as command

__all__ = ["aws_endpoint", "bucket", "s3_credentials", "s3_server"]


@pytest.fixture
def instance_id():
    return f"story-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def instance(aws_endpoint, bucket, instance_id):
    """An instance in a bucket, with a table, whose jobs are in SQS and DynamoDB."""
    properties = {"sleeper.id": instance_id, "sleeper.jobs.url": "sqs"}
    opened = sleeper.create_instance(f"s3://{bucket}/demo", properties)
    opened.create_table("numbers", SCHEMA, row_keys=["id"])
    return opened


@pytest.fixture
def sqs(aws_endpoint):
    """A client of SQS as any program has it."""
    return boto3.client("sqs", region_name=REGION, endpoint_url=aws_endpoint)


def queue_url(sqs, instance_id, name):
    return sqs.get_queue_url(QueueName=f"sleeper-{instance_id}-{name}")["QueueUrl"]


def test_a_message_of_another_program_is_ingested(instance, instance_id, sqs, tmp_path):
    """Given plain boto3 and the documents' JSON, when a worker runs, then the rows are found."""
    work(instance)  # its first look makes the queue
    file = written(tmp_path / "one.parquet", 1, 2)
    body = {"id": "from-boto3", "tableName": "numbers", "files": [str(file)]}
    sqs.send_message(
        QueueUrl=queue_url(sqs, instance_id, "IngestJobQ"), MessageBody=json.dumps(body)
    )

    assert work(instance) == 1

    status = instance.jobs.job("from-boto3")
    assert status.state is JobState.FINISHED
    assert status.furthest_run.rows_written == 2
    assert instance.table("numbers").query(key="0002").to_pylist() == [{"id": "0002", "n": 2}]
    with sleeper.connect(instance.url) as elsewhere:
        assert elsewhere.jobs.job("from-boto3").state is JobState.FINISHED


def test_files_are_a_bucket_and_a_key(instance, instance_id, sqs, bucket, aws_endpoint, tmp_path):
    """Given paths without a scheme, as upstream's clients send them, then they are in S3 (ING-9)."""
    work(instance)
    s3 = boto3.client("s3", region_name=REGION, endpoint_url=aws_endpoint)
    for name in ("one.parquet", "june/two.parquet"):
        number = len(name)
        s3.upload_file(str(written(tmp_path / "file.parquet", number)), bucket, f"in/{name}")
    body = {
        "id": "two-places",
        "tableName": "numbers",
        "files": [f"{bucket}/in/one.parquet", f"{bucket}/in/june/"],
    }
    sqs.send_message(
        QueueUrl=queue_url(sqs, instance_id, "IngestJobQ"), MessageBody=json.dumps(body)
    )

    assert work(instance) == 1

    assert instance.jobs.job("two-places").state is JobState.FINISHED
    assert instance.table("numbers").query().to_arrow()["n"].to_pylist() == [11, 16]


def test_rows_of_a_query_go_to_a_queue_of_its_sender(sqs, tmp_path):
    """Given jobs in a folder, then a queue in SQS takes rows all the same (QRY-11)."""
    instance = sleeper.connect(tmp_path / "instance", create=True)
    instance.create_table("numbers", SCHEMA, row_keys=["id"]).ingest([{"id": "a", "n": 1}])
    answers = sqs.create_queue(QueueName=f"answers-{uuid.uuid4().hex[:8]}")["QueueUrl"]
    query = {
        "queryId": "q",
        "tableName": "numbers",
        "type": "Query",
        "regions": [{}],
        "resultsPublisherConfig": {"destination": "SQS", "sqsResultsUrl": answers},
    }
    instance.jobs.send("query", json.dumps(query))

    assert work(instance, "query") == 1

    [message] = sqs.receive_message(QueueUrl=answers)["Messages"]
    assert json.loads(message["Body"])["rows"] == [{"id": "a", "n": 1}]
    assert instance.jobs.query("q").locations == (answers,)


def test_a_job_that_failed_too_often_can_be_sent_again(instance, tmp_path):
    """Given a file that comes late, when its dead letter is redriven, then the job is done."""
    instance.set_properties({"sleeper.jobs.receives.max": 1})
    file = tmp_path / "late.parquet"
    file.write_bytes(b"not yet")
    job_id = instance.jobs.submit_ingest("numbers", file)
    assert work(instance) == 1
    [letter] = instance.jobs.dead_letters("ingest")
    pq.write_table(pa.table({"id": ["a"], "n": [1]}, schema=SCHEMA), file)

    assert instance.jobs.redrive("ingest") == 1

    assert "late.parquet" in letter.reason
    assert work(instance) == 1
    assert instance.jobs.job(job_id).state is JobState.FINISHED
    assert instance.jobs.dead_letters("ingest") == []


def test_commands_show_what_is_in_sqs(instance, tmp_path):
    """Given a job, then its queue says so; how old it is, SQS cannot tell."""
    instance.jobs.submit_ingest("numbers", written(tmp_path / "one.parquet", 1))

    shown = command("queue", "list", "--json", "--instance", instance.url)

    assert shown.exit_code == 0, shown.output
    depth = json.loads(shown.stdout)["ingest"]
    assert depth == {"ready": 1, "hidden": 0, "dead": 0, "oldest_s": None}


def test_an_instance_with_the_same_id_is_refused(instance, instance_id, s3_server, tmp_path):
    """Given two buckets, when both would use one queue, then the second is told so."""
    instance.jobs.submit_ingest("numbers", written(tmp_path / "one.parquet", 1))
    properties = {"sleeper.id": instance_id, "sleeper.jobs.url": "sqs"}
    other = sleeper.create_instance(f"s3://{s3_server.new_bucket()}/demo", properties)
    other.create_table("numbers", SCHEMA, row_keys=["id"])

    with pytest.raises(PropertiesInvalid, match=f"{instance.url}.*same sleeper.id"):
        other.jobs.submit_ingest("numbers", tmp_path / "one.parquet")


def test_no_secret_is_logged(instance, tmp_path, caplog, monkeypatch):
    """Whatever is logged of all that happens."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very-secret")

    with caplog.at_level(logging.INFO, "sleeper"):
        instance.jobs.submit_ingest("numbers", written(tmp_path / "one.parquet", 1))
        work(instance)

    assert "made queue" in caplog.text
    assert "very-secret" not in caplog.text
