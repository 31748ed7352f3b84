"""Queues in SQS that take rows of queries."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from sleeper.errors import ObjectNotFound, StorageFailed, StorageReadOnly
from sleeper.storage.aws.jobs.sqs_messages import SqsResultsQueue

URL = "https://sqs.eu-west-2.amazonaws.com/123456789012/answers"


class Sqs:
    """A client that refuses what it is sent, or takes it."""

    def __init__(self, error=None):
        self.error, self.sent, self.regions = error, [], []

    def of(self, region):
        self.regions.append(region)
        return self

    def send_message(self, **message):
        self.sent.append(message)
        if self.error is not None:
            raise self.error


def refusal(code):
    answer = {"Error": {"Code": code, "Message": "it says so"}, "ResponseMetadata": {}}
    return ClientError(answer, "SendMessage")


@pytest.mark.parametrize(
    ("url", "region"),
    [
        (URL, "eu-west-2"),
        ("https://sqs.cn-north-1.amazonaws.com.cn/1/answers", "cn-north-1"),
        ("http://127.0.0.1:4566/000000000000/answers", None),
        ("https://sqs.eu-west-2.amazonaws.com.example.org/1/answers", None),
    ],
)
def test_a_message_goes_to_the_region_of_its_queue(url, region):
    """One request; a server that is not Amazon's is in no region of its own (QRY-11)."""
    sqs = Sqs()

    SqsResultsQueue(sqs.of).send(url, "{}")

    assert sqs.sent == [{"QueueUrl": url, "MessageBody": "{}"}]
    assert sqs.regions == [region]


@pytest.mark.parametrize(
    ("error", "kind", "told"),
    [
        (refusal("AWS.SimpleQueueService.NonExistentQueue"), ObjectNotFound, "sqsResultsUrl"),
        (refusal("InvalidAddress"), ObjectNotFound, "there is no such queue"),
        (refusal("AccessDenied"), StorageReadOnly, "sqs:SendMessage"),
        (refusal("RequestThrottled"), StorageFailed, "too many calls"),
        (EndpointConnectionError(endpoint_url="x"), StorageFailed, "no answer"),
    ],
)
def test_a_queue_that_takes_nothing_is_named(error, kind, told):
    """A queue of another account is denied; none is made."""
    with pytest.raises(kind, match=told) as caught:
        SqsResultsQueue(Sqs(error).of).send(URL, "{}")

    assert URL in str(caught.value)
    assert type(caught.value) is kind
