"""Calls the functions of an instance in AWS as Lambda does."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field

import boto3
import pytest

import sleeper
from sleeper.interfaces.lambdas import warm_instance
from tests.contracts.jobs.lambda_records import records_from
from tests.contracts.s3_server import REGION, aws_endpoint, bucket, s3_credentials, s3_server
from tests.stories.test_ingest_jobs import SCHEMA

__all__ = ["aws_endpoint", "bucket", "s3_credentials", "s3_server"]


@dataclass
class Context:
    """What Lambda passes beside the event."""

    whole_s: float = 900.0
    begun: float = field(default_factory=time.monotonic)

    def get_remaining_time_in_millis(self):
        return max(0, int(1000 * (self.begun + self.whole_s - time.monotonic())))


@pytest.fixture
def functions_of(aws_endpoint, monkeypatch):
    """Lets functions find an instance in their environment, as in a new process."""

    def of(instance):
        monkeypatch.setattr(warm_instance, "_open", type(warm_instance._open)())
        monkeypatch.setenv("SLEEPER_INSTANCE", instance.url)
        return instance

    return of


@pytest.fixture
def instance(functions_of, bucket):
    """An instance with a table, whose functions these are.

    Its queues are made when they are used: an instance at `aws://` has forty resources, which takes
    seconds to make. A story has one.
    """
    made = sleeper.create_instance(
        f"s3://{bucket}/demo",
        {
            "sleeper.id": f"fn-{uuid.uuid4().hex[:10]}",
            "sleeper.jobs.url": "sqs",
            "sleeper.default.table.statestore.classname": "DynamoDBTransactionLogStateStore",
        },
    )
    made.create_table("numbers", SCHEMA, row_keys=["id"])
    return functions_of(made)


@pytest.fixture
def client(aws_endpoint):
    """Makes clients of services as any program has them."""
    return lambda service: boto3.client(service, region_name=REGION, endpoint_url=aws_endpoint)


@pytest.fixture
def tables_queue(instance, client, monkeypatch):
    """The URL of a FIFO queue for operations on tables, which functions find."""
    made = client("sqs").create_queue(
        QueueName=f"sleeper-{instance.instance_id}-TablesQ.fifo", Attributes={"FifoQueue": "true"}
    )
    monkeypatch.setenv("SLEEPER_TABLES_QUEUE_URL", made["QueueUrl"])
    return made["QueueUrl"]


@pytest.fixture
def call(instance, aws_endpoint, client):
    """Calls a function with what waits in a queue of the instance; deletes what did not fail.

    Returns the bodies that Lambda received, and those that failed.
    """

    def called(function, queue, *, whole_s=900.0, delete=True):
        urls = instance.jobs.stores.queue(queue).urls()
        records = records_from(urls[0], endpoint=aws_endpoint)
        answer = function({"Records": records}, Context(whole_s))
        failed = {each["itemIdentifier"] for each in answer["batchItemFailures"]}
        assert failed <= {record["messageId"] for record in records}
        done = [
            {"Id": record["messageId"], "ReceiptHandle": record["receiptHandle"]}
            for record in records
            if delete and record["messageId"] not in failed
        ]
        if done:  # some are gone already: Amazon takes no offence
            client("sqs").delete_message_batch(QueueUrl=urls[0], Entries=done)
        return (
            [record["body"] for record in records],
            [record["body"] for record in records if record["messageId"] in failed],
        )

    return called


def uploaded(client, instance, path, key):
    """Put a file into the instance's bucket of tables, and return its path for messages."""
    bucket = instance.properties.text("sleeper.data.bucket") or instance.url.split("/")[2]
    client("s3").upload_file(str(path), bucket, key)
    return f"{bucket}/{key}"
