"""Receives messages from SQS as Lambda does, and hands them out as records."""

from __future__ import annotations

import boto3

from sleeper.model.jobs.messages import check_receive
from sleeper.storage.aws.jobs.delivered_queue import DeliveredQueue, delivered
from tests.contracts.s3_server import REGION


def record_of(message):
    """What Lambda makes of a message that SQS returned."""
    noted = message.get("MessageAttributes") or {}
    return {
        "messageId": message["MessageId"],
        "receiptHandle": message["ReceiptHandle"],
        "body": message["Body"],
        "attributes": message["Attributes"],
        "messageAttributes": {
            name: {"stringValue": each["StringValue"], "dataType": "String"}
            for name, each in noted.items()
        },
        "eventSource": "aws:sqs",
        "eventSourceARN": "arn:aws:sqs:us-east-1:000000000000:queue",
        "awsRegion": REGION,
    }


def records_from(url, count=10, *, endpoint, wait_s=0, visibility_s=None):
    """Receive up to ten messages, as records."""
    how = {} if visibility_s is None else {"VisibilityTimeout": int(visibility_s)}
    received = boto3.client("sqs", region_name=REGION, endpoint_url=endpoint).receive_message(
        QueueUrl=url,
        MaxNumberOfMessages=count,
        WaitTimeSeconds=int(wait_s),
        MessageSystemAttributeNames=["All"],
        MessageAttributeNames=["All"],
        **how,
    )
    return [record_of(message) for message in received.get("Messages", ())]


class LambdaAsReceiver:
    """A queue whose messages come through Lambda: each is a call of a function with one record.

    Lambda deletes what the function does not name as failed.
    """

    def __init__(self, queue, endpoint):
        self._queue, self._endpoint = queue, endpoint
        self._calls: dict[str, tuple[DeliveredQueue, dict]] = {}

    def __getattr__(self, name):
        return getattr(self._queue, name)

    def receive(self, count_max=1, *, wait_s=0.0, visibility_s=None):
        check_receive(count_max, wait_s, 0.0 if visibility_s is None else visibility_s)
        received = []
        while len(received) < count_max:
            asked = min(10, count_max - len(received))
            records = records_from(
                self._queue.urls()[0],
                asked,
                endpoint=self._endpoint,
                wait_s=0 if received else wait_s,
                visibility_s=visibility_s,
            )
            for record in records:
                call = DeliveredQueue(self._queue, [delivered(record)])
                [message] = call.receive(10)
                assert call.receive(10) == []
                self._calls[message.receipt] = call, record
                received.append(message)
            if len(records) < asked:
                break
        return received

    def extend(self, receipt, visibility_s):
        return self._asked(receipt, lambda call, _: call.extend(receipt, visibility_s))

    def release(self, receipt, delay_s=0.0, *, counted=True):
        return self._asked(receipt, lambda call, _: call.release(receipt, delay_s, counted=counted))

    def bury(self, receipt, reason):
        return self._asked(receipt, lambda call, _: call.bury(receipt, reason))

    def delete(self, receipts):
        """Delete what a call does not name as failed."""
        done = []
        for receipt in receipts:
            marked = self._asked(
                receipt, lambda call, record: call.delete([record["receiptHandle"]])
            )
            done.append(bool(marked) and self._queue.delete([receipt]) == [True])
        return done

    def _asked(self, receipt, ask):
        found = self._calls.get(receipt) or (DeliveredQueue(self._queue, []), {"receiptHandle": ""})
        return ask(*found)
