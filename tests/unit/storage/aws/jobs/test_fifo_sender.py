"""Messages to a FIFO queue are sent ten at a time, and what SQS refuses of them again."""

from __future__ import annotations

import boto3
import pytest
from botocore.stub import Stubber

from sleeper.errors import StorageFailed
from sleeper.model.jobs.messages import NewMessage
from sleeper.storage.aws.jobs.fifo_sender import FifoSender

URL = "https://sqs.us-east-1.amazonaws.com/1/tables.fifo"


@pytest.fixture
def sqs():
    """A stand-in for SQS that checks requests against Amazon's model."""
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
    client = boto3.client("sqs", region_name="us-east-1", **keys)
    with Stubber(client) as stub:
        stub.boto3 = client
        yield stub
        stub.assert_no_pending_responses()


@pytest.fixture
def rests():
    return []


@pytest.fixture
def sender(sqs, rests):
    return FifoSender(lambda: sqs.boto3, URL, rest=rests.append)


def messages(*groups):
    return [NewMessage(body=group, group=group, deduplication_id=group) for group in groups]


def expect(sqs, groups, refused=()):
    """Expect a batch, and refuse some of it."""
    entries = [
        {"Id": key, "MessageBody": group, "MessageGroupId": group, "MessageDeduplicationId": group}
        for key, group in groups
    ]
    failed = [
        {"Id": key, "SenderFault": False, "Code": "InternalError"}
        for key, group in groups
        if group in refused
    ]
    done = [
        {"Id": key, "MessageId": key, "MD5OfMessageBody": "x"}
        for key, group in groups
        if group not in refused
    ]
    sqs.add_response(
        "send_message_batch",
        {"Successful": done, "Failed": failed},
        {"QueueUrl": URL, "Entries": entries},
    )


def test_ten_are_sent_in_a_call(sqs, sender):
    """And a group is in no call twice."""
    names = [f"g{n}" for n in range(12)]
    expect(sqs, [(str(n), names[n]) for n in range(10)])
    expect(sqs, [("0", "g10"), ("1", "g11")])

    assert sender.send(messages(*names)) == set()


def test_what_is_refused_of_a_batch_is_sent_again(sqs, sender, rests, caplog):
    """Given one of three, then that one alone, after a pause."""
    expect(sqs, [("0", "a"), ("1", "b"), ("2", "c")], refused="b")
    expect(sqs, [("1", "b")])

    assert sender.send(messages("a", "b", "c")) == set()
    assert rests == [1.0]
    assert "1 messages were not sent" in caplog.text


def test_what_is_refused_three_times_is_told(sqs, sender, rests):
    """The others were sent; whoever sends notes who was not."""
    expect(sqs, [("0", "a"), ("1", "b")], refused="b")
    expect(sqs, [("1", "b")], refused="b")
    expect(sqs, [("1", "b")], refused="b")

    assert sender.send(messages("a", "b")) == {"b"}
    assert rests == [1.0, 2.0]


def test_a_queue_that_is_gone_is_an_error_that_names_it(sqs, sender):
    """No queue is made: it belongs to the deployment."""
    sqs.add_client_error("send_message_batch", "AWS.SimpleQueueService.NonExistentQueue", "none")

    with pytest.raises(StorageFailed, match=r"tables\.fifo.*does not exist"):
        sender.send(messages("a"))
