"""What servers for tests never do: SQS refuses a part of a batch, is busy, or loses replies."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from sleeper.errors import (
    BadRequest,
    ObjectNotFound,
    PropertiesInvalid,
    StorageFailed,
    StorageReadOnly,
)
from sleeper.model.jobs.kinds import QueueName
from sleeper.model.jobs.messages import NewMessage, QueueSettings
from sleeper.storage.aws.clients import resource_prefix
from sleeper.storage.aws.jobs.sqs_calls import sqs_names
from sleeper.storage.aws.jobs.sqs_messages import batches, delivery_of, new_entry
from sleeper.storage.aws.jobs.sqs_queue import SqsQueue

NAME = "sleeper-demo-IngestJobQ"
NOON_MS = "1777896000000"
NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)


def refusal(code):
    """Return the error that boto3 raises when SQS refuses a call."""
    answer = {"Error": {"Code": code, "Message": "it says so"}, "ResponseMetadata": {}}
    return ClientError(answer, "SendMessage")


def received(body, number=1, *, attributes=None, **system):
    """Return a message as boto3 does."""
    noted = {
        name: {"DataType": "String", "StringValue": value}
        for name, value in (attributes or {}).items()
    }
    return {
        "MessageId": f"sqs-{number}",
        "ReceiptHandle": f"receipt-{number}",
        "Body": body,
        "MessageAttributes": noted,
        "Attributes": {"SentTimestamp": NOON_MS, "ApproximateReceiveCount": "1", **system},
    }


class Sqs:
    """A client that answers what it was told to, and notes calls. Its queues exist."""

    def __init__(self, **answers):
        self.answers = {name: list(each) for name, each in answers.items()}
        self.calls = []

    def __getattr__(self, operation):
        def call(**parameters):
            self.calls.append((operation, parameters))
            if self.answers.get(operation):
                answer = self.answers[operation].pop(0)
                if isinstance(answer, Exception):
                    raise answer
                return answer
            return {"QueueUrl": f"http://sqs/{parameters.get('QueueName')}"}

        return call

    def asked(self, operation):
        return [parameters for name, parameters in self.calls if name == operation]


def queue_of(sqs, *, pauses=None, fifo=False, owner="s3://bucket/demo", **settings):
    """Return a queue on a client."""
    numbers = count()
    return SqsQueue(
        lambda: sqs,
        "sleeper-demo-",
        QueueName.INGEST,
        owner,
        QueueSettings(fifo=fifo, **settings),
        sleep=(pauses if pauses is not None else []).append,
        new_id=lambda: f"id-{next(numbers)}",
        look_s=0,
    )


def failed(*ids, code="InternalError", ours=False):
    """Return the answer to a batch of which some entries failed."""
    return {"Failed": [{"Id": each, "Code": code, "SenderFault": ours} for each in ids]}


def bodies(batch):
    return [entry["MessageBody"] for entry in batch["Entries"]]


class TestPartsOfBatches:
    """SQS does a part of a batch, and says which."""

    def test_what_was_not_sent_is_sent_again(self, caplog):
        """Alone, after a pause, and a log line tells."""
        sqs = Sqs(send_message_batch=[failed("1", "2"), failed("2"), {}])
        pauses = []

        queue_of(sqs, pauses=pauses).send([NewMessage(body=body) for body in "abc"])

        sent = [bodies(batch) for batch in sqs.asked("send_message_batch")]
        assert sent == [["a", "b", "c"], ["b", "c"], ["c"]]
        assert pauses == [1.0, 2.0]
        assert "2 of 3 entries of send_message_batch failed (InternalError)" in caplog.text

    def test_what_cannot_be_sent_is_told(self):
        """How many, of which queue, and why; no batch follows."""
        sqs = Sqs(send_message_batch=[failed("0")] * 3)

        with pytest.raises(StorageFailed, match=rf"{NAME}.*1 of 10 messages \(InternalError\)"):
            queue_of(sqs).send([NewMessage(body=str(n)) for n in range(12)])

        assert len(sqs.asked("send_message_batch")) == 3

    def test_a_message_that_sqs_refuses_is_not_sent_again(self):
        """It would refuse it again."""
        sqs = Sqs(send_message_batch=[failed("0", code="InvalidMessageContents", ours=True)])

        with pytest.raises(StorageFailed, match="InvalidMessageContents"):
            queue_of(sqs).send([NewMessage(body="a")])

    def test_a_receipt_that_was_not_deleted_is_stale_or_tried_again(self):
        """By what SQS says about it."""
        stale = failed("0", code="AWS.SimpleQueueService.ReceiptHandleIsInvalid", ours=True)
        both = {"Failed": [*stale["Failed"], *failed("1")["Failed"]]}
        sqs = Sqs(delete_message_batch=[both, {}])

        deleted = queue_of(sqs).delete(["a", "b", "", "c"])

        assert deleted == [False, True, False, True]
        entries = [batch["Entries"] for batch in sqs.asked("delete_message_batch")]
        assert [[each["ReceiptHandle"] for each in batch] for batch in entries] == [
            ["a", "b", "c"],
            ["b"],
        ]

    def test_a_receipt_that_cannot_be_deleted_is_told(self):
        """The message comes again."""
        sqs = Sqs(delete_message_batch=[failed("0")] * 3)

        with pytest.raises(StorageFailed, match="delete message"):
            queue_of(sqs).delete(["a"])


class TestFailures:
    """Calls that fail."""

    @pytest.mark.parametrize(
        ("error", "kind", "told"),
        [
            (refusal("AccessDenied"), StorageReadOnly, "sqs:SendMessage"),
            (refusal("RequestThrottled"), StorageFailed, "too many calls"),
            (refusal("InvalidClientTokenId"), StorageFailed, "AWS_ACCESS_KEY_ID"),
            (EndpointConnectionError(endpoint_url="http://x"), StorageFailed, "no answer"),
        ],
    )
    def test_a_send_that_fails_names_the_queue(self, error, kind, told):
        """And the permission that it needs."""
        with pytest.raises(kind, match=rf"'{NAME}'.*{told}"):
            queue_of(Sqs(send_message_batch=[error])).send([NewMessage(body="a")])

    def test_a_look_that_is_denied_names_its_permission(self):
        """No write was refused."""
        sqs = Sqs(get_queue_url=[refusal("AccessDenied")])

        with pytest.raises(StorageFailed, match="sqs:GetQueueUrl") as failure:
            queue_of(sqs).receive()

        assert type(failure.value) is StorageFailed

    def test_messages_that_were_received_are_returned(self, caplog):
        """Though the call for more failed: else nobody would have them for a while."""
        ten = {"Messages": [received(str(n), n) for n in range(10)]}
        sqs = Sqs(receive_message=[ten, refusal("RequestThrottled")])

        messages = queue_of(sqs).receive(20)

        assert len(messages) == 10
        assert "10 messages were received before" in caplog.text

    def test_a_queue_that_was_deleted_is_made_again(self, caplog):
        """Its URL is not used any more; a second time in one call is an error."""
        gone = refusal("AWS.SimpleQueueService.NonExistentQueue")
        sqs = Sqs(send_message_batch=[gone, {}, gone, gone])
        queue = queue_of(sqs)

        queue.send([NewMessage(body="a")])

        assert len(sqs.asked("get_queue_url")) == 2
        assert "does not exist any more" in caplog.text
        with pytest.raises(ObjectNotFound, match=NAME):
            queue.send([NewMessage(body="b")])

    def test_an_extension_that_is_not_answered_is_no_stale_receipt(self):
        """The caller tries again."""
        busy = EndpointConnectionError(endpoint_url="http://x")

        with pytest.raises(StorageFailed, match="may or may not"):
            queue_of(Sqs(change_message_visibility=[busy])).extend("a", 9)

    def test_a_queue_that_is_missing_has_no_messages(self):
        """A look makes none."""
        missing = refusal("QueueDoesNotExist")
        sqs = Sqs(get_queue_url=[missing] * 9)
        queue = queue_of(sqs)

        depth = queue.depth()

        assert (depth.ready, depth.hidden, depth.dead, depth.oldest_s) == (0, 0, 0, None)
        assert queue.dead_letters() == []
        assert queue.redrive() == queue.delete_dead_letters() == 0
        assert not queue.extend("a", 1)
        assert sqs.asked("create_queue") == []

    def test_a_queue_that_another_process_makes_is_found(self):
        """With other attributes, as its properties are other ones."""
        missing = refusal("QueueDoesNotExist")
        found = {"QueueUrl": "http://sqs/theirs"}
        sqs = Sqs(
            get_queue_url=[missing, found, found],
            get_queue_attributes=[{"Attributes": {"QueueArn": "arn"}}],
            create_queue=[refusal("QueueNameExists")],
            receive_message=[{}],
        )

        assert queue_of(sqs).receive() == []

        assert sqs.asked("receive_message")[0]["QueueUrl"] == "http://sqs/theirs"


class TestOwners:
    """Two instances with one id."""

    def test_a_queue_of_another_instance_is_refused(self):
        """Both places are named; nothing is taken from it."""
        sqs = Sqs(list_queue_tags=[{"Tags": {"sleeper.instance.url": "s3://other/demo"}}])

        with pytest.raises(PropertiesInvalid, match=r"s3://other/demo.*s3://bucket/demo"):
            queue_of(sqs).receive()

        assert sqs.asked("receive_message") == []

    @pytest.mark.parametrize("answer", [{}, {"Tags": {"team": "x"}}, refusal("AccessDenied")])
    def test_a_queue_without_the_tag_is_used(self, answer):
        """Upstream made it, or the tags may not be seen."""
        assert queue_of(Sqs(list_queue_tags=[answer], receive_message=[{}])).receive() == []

    def test_a_long_url_is_a_hash(self):
        """A tag has at most 256 characters, and not all."""
        missing = refusal("QueueDoesNotExist")
        arn = {"Attributes": {"QueueArn": "arn"}}
        sqs = Sqs(get_queue_url=[missing] * 2, get_queue_attributes=[arn], receive_message=[{}])

        queue_of(sqs, owner="s3://bucket/é").receive()

        _, made = sqs.asked("create_queue")
        assert len(made["tags"]["sleeper.instance.url"]) == 64


class TestRequests:
    """What is asked of SQS."""

    def test_a_queue_is_made_with_its_attributes(self):
        """Dead letters first; times in whole seconds, rounded up."""
        missing = refusal("QueueDoesNotExist")
        sqs = Sqs(
            get_queue_url=[missing, missing],
            get_queue_attributes=[{"Attributes": {"QueueArn": "arn:dead"}}],
        )
        queue = queue_of(sqs, fifo=True, visibility_s=6.2, receives_max=7)

        queue.send([NewMessage(body="a", group="g")])

        dead, made = sqs.asked("create_queue")
        assert dead["QueueName"] == "sleeper-demo-IngestJobDLQ.fifo"
        assert made["QueueName"] == "sleeper-demo-IngestJobQ.fifo"
        assert "RedrivePolicy" not in dead["Attributes"]
        assert made["Attributes"] == {
            "FifoQueue": "true",
            "MessageRetentionPeriod": "1209600",
            "RedrivePolicy": '{"deadLetterTargetArn": "arn:dead", "maxReceiveCount": "7"}',
            "VisibilityTimeout": "7",
        }

    def test_a_message_is_received_a_thousand_times_at_most(self):
        """More, a redrive policy of SQS does not allow; the property does."""
        missing = refusal("QueueDoesNotExist")
        arn = {"Attributes": {"QueueArn": "arn"}}
        sqs = Sqs(get_queue_url=[missing] * 2, get_queue_attributes=[arn], receive_message=[{}])

        queue_of(sqs, receives_max=5_000).receive()

        _, made = sqs.asked("create_queue")
        assert '"maxReceiveCount": "1000"' in made["Attributes"]["RedrivePolicy"]

    def test_times_are_whole_seconds(self):
        """Rounded up: nothing comes early."""
        sqs = Sqs(receive_message=[{}])
        queue = queue_of(sqs)

        queue.receive(wait_s=0.2, visibility_s=1.1)
        queue.extend("a", 2.5)
        queue.send([NewMessage(body="a", delay_s=0.1)])

        [asked] = sqs.asked("receive_message")
        assert (asked["WaitTimeSeconds"], asked["VisibilityTimeout"]) == (1, 2)
        assert sqs.asked("change_message_visibility")[0]["VisibilityTimeout"] == 3
        assert sqs.asked("send_message_batch")[0]["Entries"][0]["DelaySeconds"] == 1

    def test_batches_have_what_sqs_takes(self):
        """Ten entries, 256 KiB, and no group twice; all in order."""
        large = [new_entry(NewMessage(body="é" * 60_000), "") for _ in range(3)]
        small = [new_entry(NewMessage(body=str(n)), "") for n in range(23)]
        groups = [new_entry(NewMessage(body="a", group=g), "d") for g in "abacc"]

        assert [len(batch) for batch in batches(large)] == [2, 1]
        assert [len(batch) for batch in batches(small)] == [10, 10, 3]
        assert [len(batch) for batch in batches(groups)] == [2, 2, 1]
        assert [each for batch in batches(small) for each in batch] == small

    @pytest.mark.parametrize("character", ["\0", "\x1b", "\uffff"])
    def test_characters_that_sqs_does_not_take_are_refused(self, character):
        """Before anything is sent, with those that were sent along."""
        sqs = Sqs()

        with pytest.raises(BadRequest, match=rf"U\+{ord(character):04X}"):
            queue_of(sqs).send([NewMessage(body="good"), NewMessage(body=f"a{character}")])

        assert sqs.calls == []

    @pytest.mark.parametrize("group", ["a b", "x" * 129, "é"])
    def test_groups_that_sqs_does_not_take_are_refused(self, group):
        """The message says which are allowed."""
        with pytest.raises(BadRequest, match="group is"):
            queue_of(Sqs(), fifo=True).send([NewMessage(body="a", group=group)])

    def test_any_deduplication_id_will_do(self):
        """One that SQS does not take is hashed; a message without one gets one."""

        def token(deduplication_id):
            message = NewMessage(body="a", group="g", deduplication_id=deduplication_id)
            return new_entry(message, "new")["MessageDeduplicationId"]

        assert token("plain/1") == "plain/1"
        assert token(None) == "new"
        assert token("é 1") == token("é 1") != token("é 2")
        assert len(token("x" * 999)) == 64


class TestNotes:
    """What Sleeper notes in the attributes of messages."""

    def test_a_message_that_was_sent_again_is_the_same(self):
        """By its id, its time, and how often it was received."""
        noted = {
            "Sleeper.MessageId": "first",
            "Sleeper.Sent": "2026-05-04T11:00:00+00:00",
            "Sleeper.Receives": "2",
        }

        message = delivery_of(received("a", attributes=noted)).message

        assert (message.message_id, message.receives) == ("first", 3)
        assert message.sent == NOON.replace(hour=11)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("Sleeper.Sent", "yesterday"),
            ("Sleeper.Sent", "2026-05-04T11:00:00"),
            ("Sleeper.Receives", "-1"),
            ("Sleeper.Receives", "9" * 99),
            ("Sleeper.MessageId", ""),
            ("Sleeper.Other", "x"),
        ],
    )
    def test_nonsense_in_attributes_does_no_harm(self, name, value):
        """Anybody who may send a message can write anything there."""
        message = delivery_of(received("a", attributes={name: value})).message

        assert (message.message_id, message.receives, message.sent) == ("sqs-1", 1, NOON)

    def test_an_uncounted_release_keeps_what_was_counted_before(self):
        """A copy takes its place: with id, time and earlier deliveries; then it is deleted."""
        message = received("a", ApproximateReceiveCount="3")
        sqs = Sqs(receive_message=[{"Messages": [message]}], send_message_batch=[{}])
        queue = queue_of(sqs)
        [delivered] = queue.receive()

        assert queue.release(delivered.receipt, 1.5, counted=False)

        [entry] = sqs.asked("send_message_batch")[0]["Entries"]
        assert entry["DelaySeconds"] == 2
        names = {name: each["StringValue"] for name, each in entry["MessageAttributes"].items()}
        assert names == {
            "Sleeper.MessageId": "sqs-1",
            "Sleeper.Sent": "2026-05-04T12:00:00+00:00",
            "Sleeper.Receives": "2",
        }
        finding = ("get_queue_url", "list_queue_tags")
        operations = [name for name, _ in sqs.calls if name not in finding]
        assert operations[1:] == [
            "change_message_visibility",
            "send_message_batch",
            "delete_message_batch",
        ]

    def test_a_kill_between_send_and_delete_loses_nothing(self):
        """A message that cannot be sent to the dead letters is not deleted."""
        sqs = Sqs(
            receive_message=[{"Messages": [received("a")]}],
            send_message_batch=[refusal("InternalError")],
        )
        queue = queue_of(sqs)
        [delivered] = queue.receive()

        with pytest.raises(StorageFailed):
            queue.bury(delivered.receipt, "bad")

        assert sqs.asked("delete_message_batch") == []

    @pytest.mark.parametrize(
        "end",
        [
            lambda queue, receipt: queue.bury(receipt, "bad"),
            lambda queue, receipt: queue.release(receipt, counted=False),
        ],
    )
    def test_a_stale_receipt_sends_no_copy(self, end):
        """Where SQS says that it is stale: another has the message."""
        sqs = Sqs(
            receive_message=[{"Messages": [received("a")]}],
            change_message_visibility=[refusal("ReceiptHandleIsInvalid")],
        )
        queue = queue_of(sqs)
        [delivered] = queue.receive()

        assert not end(queue, delivered.receipt)

        assert sqs.asked("send_message_batch") == []

    def test_a_reason_is_cut_and_cleaned(self):
        """It is an attribute, which has the characters that bodies have."""
        sqs = Sqs(receive_message=[{"Messages": [received("a")]}])
        queue = queue_of(sqs)
        [delivered] = queue.receive()

        queue.bury(delivered.receipt, "\x1b" + "x" * 9_999)

        [entry] = sqs.asked("send_message_batch")[0]["Entries"]
        reason = entry["MessageAttributes"]["Sleeper.Reason"]["StringValue"]
        assert reason == "\ufffd" + "x" * 3_999

    def test_only_the_last_messages_are_remembered(self, caplog):
        """One that came long before cannot be buried: it is delivered again instead."""
        messages = [received("a", n) for n in range(1_010)]
        answers = [{"Messages": messages[n : n + 10]} for n in range(0, 1_010, 10)]
        queue = queue_of(Sqs(receive_message=answers))
        for _ in range(101):
            queue.receive(10)

        assert not queue.bury("receipt-9", "bad")
        assert queue.bury("receipt-10", "bad")
        assert "none of the last messages" in caplog.text

    def test_large_messages_are_not_all_remembered(self):
        """Memory has a bound, whatever their number."""
        body = "x" * 262_144
        answers = [{"Messages": [received(body, n)]} for n in range(300)]
        queue = queue_of(Sqs(receive_message=answers))

        for _ in range(300):
            queue.receive()

        assert not queue.bury("receipt-43", "bad")
        assert queue.bury("receipt-44", "bad")


def test_a_redrive_ends_though_letters_die_again():
    """A letter is moved once in a call."""
    letter = received("a", attributes={"Sleeper.MessageId": "first", "Sleeper.Receives": "1"})
    again = {**letter, "MessageId": "sqs-2", "ReceiptHandle": "receipt-2"}
    sqs = Sqs(receive_message=[{"Messages": [letter]}, {"Messages": [again]}, {}])

    assert queue_of(sqs).redrive() == 1

    assert len(sqs.asked("send_message_batch")) == 1
    [shown] = sqs.asked("change_message_visibility_batch")
    assert [each["ReceiptHandle"] for each in shown["Entries"]] == ["receipt-2"]


def test_a_letter_that_sqs_moved_says_how_often_it_was_received():
    """Looks at it do not count."""
    moved = received(
        "a", ApproximateReceiveCount="50", ApproximateFirstReceiveTimestamp="1777896060000"
    )
    queue = queue_of(Sqs(receive_message=[{"Messages": [moved]}, {}]), receives_max=4)

    [letter] = queue.dead_letters()

    assert (letter.receives, letter.reason) == (4, "received 4 times, and never deleted")
    assert letter.sent == NOON
    assert letter.buried == replace(letter, buried=NOON.replace(minute=1)).buried


def test_names_are_those_of_upstream():
    """Dead letters end in DLQ; a FIFO queue says so."""
    names = sqs_names(resource_prefix("My.Demo"), QueueName.COMMIT, fifo=True)

    assert names.queue == "sleeper-my-demo-StateStoreCommitterQ.fifo"
    assert names.dead == "sleeper-my-demo-StateStoreCommitterDLQ.fifo"


def test_every_queue_has_names_of_its_own():
    """No more than 80 characters, with the longest id."""
    all_names = [sqs_names(resource_prefix("x" * 20), name, fifo=True) for name in QueueName]
    listed = [name for names in all_names for name in (names.queue, names.dead)]

    assert len(set(listed)) == 2 * len(QueueName)
    assert max(map(len, listed)) <= 80


@pytest.mark.parametrize("instance_id", ["a b", "é", "a/b", ""])
def test_an_id_that_aws_does_not_take_is_refused(instance_id):
    """The message names the property."""
    with pytest.raises(PropertiesInvalid, match=r"sleeper\.id"):
        resource_prefix(instance_id)


def test_making_a_queue_is_logged(caplog):
    """By its name."""
    missing = refusal("QueueDoesNotExist")
    arn = {"Attributes": {"QueueArn": "arn"}}
    sqs = Sqs(get_queue_url=[missing] * 2, get_queue_attributes=[arn], receive_message=[{}])

    with caplog.at_level(logging.INFO):
        queue_of(sqs).receive()

    assert f"made queue '{NAME}' in SQS" in caplog.text
