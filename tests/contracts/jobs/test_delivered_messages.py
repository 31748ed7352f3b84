"""Messages that Lambda delivers keep the contract of a queue, on a server that speaks SQS."""

from __future__ import annotations

import time

import pytest

from sleeper.errors import BadRequest, StorageFailed
from sleeper.model.jobs.kinds import QueueName
from sleeper.storage.aws.jobs.delivered_queue import DeliveredQueue, delivered
from tests.contracts.jobs.job_queue_contract import (
    JobQueueContract,
    JobQueueTimesContract,
    bodies_of,
    send,
)
from tests.contracts.jobs.lambda_records import LambdaAsReceiver, records_from
from tests.contracts.jobs.test_aws_jobs import stores
from tests.contracts.s3_server import aws_endpoint, kept_clients, s3_credentials, s3_server
from tests.soak import SOAK

__all__ = ["aws_endpoint", "kept_clients", "s3_credentials", "s3_server", "stores"]


@pytest.mark.soak
class TestDeliveredMessages(JobQueueTimesContract if SOAK else JobQueueContract):
    """A queue in SQS whose messages Lambda receives.

    Its times are those of SQS, which `TestSqsQueue` shows; to wait for them takes a minute.
    """

    knows_ages = False
    finds_dead_letters = False

    @pytest.fixture
    def queue(self, stores, aws_endpoint):
        return LambdaAsReceiver(stores.queue(QueueName.INGEST), aws_endpoint)

    @pytest.fixture
    def fifo(self, stores, aws_endpoint):
        return LambdaAsReceiver(stores.queue(QueueName.COMMIT), aws_endpoint)

    @pytest.fixture
    def wait(self):
        return time.sleep


@pytest.fixture
def queue(stores):
    return stores.queue(QueueName.INGEST)


@pytest.fixture
def receive(queue, aws_endpoint):
    """Receives all messages of the queue, as records of one call."""
    return lambda: records_from(queue.urls()[0], endpoint=aws_endpoint)


def test_what_is_not_deleted_has_failed(queue, receive):
    """Lambda is told the ids that SQS gave, in the order of the records."""
    send(queue, "done", "not done", "not begun")
    records = receive()
    call = DeliveredQueue(queue, [*map(delivered, records)])
    [first, second] = call.receive(2)

    deleted = call.delete([first.receipt, "nobody's", first.receipt])

    assert deleted == [True, False, False]
    assert call.failed() == [each["messageId"] for each in records[1:]]
    assert call.ready() == 1
    assert call.release(second.receipt, 20)
    assert call.failed() == [each["messageId"] for each in records[1:]]


def test_a_job_that_had_its_time_is_counted(queue, receive):
    """Given a worker that was asked to end, when its job goes back, then it is nearer to its end.

    Else a query that takes longer than a function may run would be delivered for ever.
    """
    send(queue, "too long")
    call = DeliveredQueue(queue, [*map(delivered, receive())], is_over=lambda: True)
    [message] = call.receive()

    assert call.release(message.receipt, counted=False)

    assert call.failed()
    [again] = queue.receive()
    assert again.receives == 2


def test_a_job_that_waits_for_room_is_not_counted(queue, receive):
    """Given a cluster that is full, then its job comes again later, however often."""
    send(queue, "waits")
    for _ in range(4):
        call = DeliveredQueue(queue, [*map(delivered, receive())])
        [message] = call.receive()
        assert message.receives == 1

        assert call.release(message.receipt, 1, counted=False)

        assert call.failed() == []
        time.sleep(2)


def test_a_message_that_was_not_begun_is_not_counted(queue, receive):
    """Given no time for the second one, then it comes again at once, as if never delivered."""
    send(queue, "first", "second")
    call = DeliveredQueue(queue, [*map(delivered, receive())], has_time=lambda: False)
    [first] = call.receive(1)
    call.delete([first.receipt])

    assert call.receive(1) == []
    call.release_waiting()

    assert call.failed() == []
    [again] = queue.receive()
    assert (again.body, again.receives) == ("second", 1)


def test_a_message_that_cannot_be_given_back_comes_again(queue, receive, monkeypatch):
    """Given SQS without an answer, then Lambda is told to keep it; nothing is raised."""
    send(queue, "a")
    records = receive()
    call = DeliveredQueue(queue, [*map(delivered, records)])
    monkeypatch.setattr(queue, "release", _no_answer)

    call.release_waiting()

    assert call.failed() == [records[0]["messageId"]]


def _no_answer(*_, **__):
    raise StorageFailed("no answer")


def test_messages_of_a_group_stay_in_order_when_they_were_not_begun(stores, aws_endpoint):
    """A FIFO queue counts them, and delivers them in order."""
    fifo = stores.queue(QueueName.COMMIT)
    send(fifo, "a", "b", group="g")
    records = records_from(fifo.urls()[0], endpoint=aws_endpoint)
    call = DeliveredQueue(fifo, [*map(delivered, records)])

    call.release_waiting()

    assert len(call.failed()) == 2
    assert bodies_of(fifo.receive(10)) == ["a", "b"]


@pytest.mark.parametrize(
    "record", [{}, {"kinesis": {}}, "text", None, {"messageId": "1", "receiptHandle": "2"}]
)
def test_a_record_of_something_else_is_refused(record):
    """Such as a notification of a bucket: the function is connected to the wrong thing."""
    with pytest.raises(BadRequest, match="not a record of SQS"):
        delivered(record)
