"""Lambda asks a queue for messages only while there are some: a schedule's call sees to it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import sleeper
from sleeper.errors import StorageFailed
from sleeper.interfaces.lambdas import handlers, warm_instance
from sleeper.storage.aws.jobs.queue_source import QueueSource
from tests.aws.lambdas.functions import Context
from tests.contracts.s3_server import REGION
from tests.deploy.flow.emulator import ACCOUNT, account, cloud, s3_credentials
from tests.stories.test_ingest_jobs import SCHEMA

__all__ = ["account", "cloud", "s3_credentials"]

LATER = timedelta(minutes=11)


@pytest.fixture
def queue(cloud):
    """The URL of a FIFO queue."""
    made = cloud.client("sqs").create_queue(
        QueueName=f"{cloud.instance_id}.fifo", Attributes={"FifoQueue": "true"}
    )
    return made["QueueUrl"]


@pytest.fixture
def mapping(cloud, queue):
    """The id of a mapping from the queue to a function, disabled as a stack makes it."""
    functions = cloud.client("lambda")
    functions.create_function(
        FunctionName=cloud.instance_id,
        PackageType="Image",
        Code={"ImageUri": f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/a:b"},
        Role=f"arn:aws:iam::{ACCOUNT}:role/x",
    )
    arn = f"arn:aws:sqs:{REGION}:{ACCOUNT}:{cloud.instance_id}.fifo"
    made = functions.create_event_source_mapping(
        FunctionName=cloud.instance_id, EventSourceArn=arn, Enabled=False
    )
    return made["UUID"]


@pytest.fixture
def look(cloud, queue, mapping):
    """Looks at the queue as a function does, so long from now."""

    def looked(*, sent=False, after=timedelta(0)):
        source = QueueSource(queue, mapping)
        now = datetime.now(UTC) + after
        return source.follow(cloud.client("sqs"), cloud.client("lambda"), now, sent=sent)

    return looked


@pytest.fixture
def is_enabled(cloud, mapping):
    """Whether Lambda asks the queue for messages."""

    def seen():
        found = cloud.client("lambda").get_event_source_mapping(UUID=mapping)
        return found["State"] == "Enabled"

    return seen


def put(cloud, queue):
    cloud.client("sqs").send_message(
        QueueUrl=queue, MessageBody="1", MessageGroupId="a", MessageDeduplicationId="1"
    )


def test_an_empty_queue_is_not_asked(look, is_enabled):
    """Given no message, then the mapping stays disabled, whenever it is looked."""
    assert look() is None
    assert look(after=LATER) is None
    assert not is_enabled()


def test_a_queue_is_asked_from_the_moment_in_which_messages_are_sent(look, is_enabled):
    """Given messages that counts do not show yet, then the mapping is enabled."""
    assert look(sent=True) is True
    assert is_enabled()


def test_a_queue_is_asked_when_somebody_else_has_sent_a_message(cloud, queue, look, is_enabled):
    """Given a message that waits, then the next look enables the mapping."""
    put(cloud, queue)

    assert look() is True
    assert is_enabled()


def test_a_message_that_is_being_worked_on_keeps_the_queue_asked(cloud, queue, look, is_enabled):
    """Given a message that somebody has taken and may give back, then the mapping stays."""
    look(sent=True)
    put(cloud, queue)
    cloud.client("sqs").receive_message(QueueUrl=queue, VisibilityTimeout=600)

    assert look(after=LATER) is None
    assert is_enabled()


def test_a_queue_that_is_empty_for_a_while_is_asked_no_more(look, is_enabled):
    """Given an empty queue, then the mapping is disabled, but not before counts are true."""
    look(sent=True)

    assert look(after=timedelta(minutes=9)) is None
    assert is_enabled()
    assert look(after=LATER) is False
    assert not is_enabled()


def test_a_mapping_that_is_gone_is_reported(cloud, queue):
    """Given no such mapping, then the error names the queue."""
    source = QueueSource(queue, "00000000-0000-0000-0000-000000000000")

    with pytest.raises(StorageFailed, match=f"cannot see whether {queue}"):
        source.follow(cloud.client("sqs"), cloud.client("lambda"), datetime.now(UTC), sent=True)


def test_the_calls_of_schedules_follow_their_queues(cloud, queue, mapping, is_enabled, monkeypatch):
    """Given a changed table, then the trigger has its queue asked; a look at batches does too."""
    instance = sleeper.create_instance(cloud.url)
    monkeypatch.setattr(warm_instance, "_open", type(warm_instance._open)())
    monkeypatch.setenv("SLEEPER_INSTANCE", instance.url)
    monkeypatch.setenv("SLEEPER_TABLES_QUEUE_URL", queue)
    monkeypatch.setenv("SLEEPER_SOURCE", mapping)
    monkeypatch.setenv("SLEEPER_SOURCE_QUEUE_URL", queue)

    handlers.create_batches({}, Context())
    handlers.trigger_tables({"operation": "split"}, Context())
    before = is_enabled()
    instance.create_table("numbers", SCHEMA, row_keys=["id"])
    asked = handlers.trigger_tables({"operation": "split"}, Context())

    assert not before
    assert asked == {"tables": ["numbers"]}
    assert is_enabled()
    cloud.client("lambda").update_event_source_mapping(UUID=mapping, Enabled=False)
    handlers.create_batches({}, Context())
    assert is_enabled()
