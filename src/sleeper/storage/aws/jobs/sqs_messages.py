"""Messages as SQS holds them, and what Sleeper notes in their attributes.

A message that is sent again, as a dead letter or out of the dead letters, is a new one to SQS. Its
attributes keep the id and the time that it had at first.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from math import ceil
from typing import Any, Final

from sleeper.errors import BadRequest, ObjectNotFound
from sleeper.model.aws_partitions import DOMAINS
from sleeper.model.jobs.messages import DeadLetter, NewMessage, ReceivedMessage, received_too_often
from sleeper.model.object_stores import without_credentials
from sleeper.storage.aws.clients import aws_failure, error_code, is_missing, vendor_errors

SYSTEM_ATTRIBUTES: Final = [
    "ApproximateFirstReceiveTimestamp",
    "ApproximateReceiveCount",
    "MessageGroupId",
    "SentTimestamp",
]
BATCH_MAX: Final = 10

_ID, _SENT = "Sleeper.MessageId", "Sleeper.Sent"
_REASON, _RECEIVES = "Sleeper.Reason", "Sleeper.Receives"
ATTRIBUTES: Final = [_ID, _SENT, _REASON, _RECEIVES]
"""What a receive asks for: each by its name, for not all servers know `Sleeper.*`."""
_BATCH_BYTES_MAX: Final = 262_144
_REASON_MAX: Final = 4_000
_COUNT_MAX: Final = 1_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_REFUSED: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_TOKEN: Final = re.compile(r"[!-~]{1,128}")

Entry = dict[str, Any]
"""An entry of SendMessageBatch, without its `Id`."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message that was received, and its id in SQS."""

    sqs_id: str
    message: ReceivedMessage


def whole_seconds(seconds: float) -> int:
    """Return seconds rounded up: SQS knows no parts of a second."""
    return ceil(seconds)


def check_characters(messages: Sequence[NewMessage]) -> None:
    """Check that SQS takes the texts of messages.

    Raises:
        BadRequest: a body has a control character, or a group has a space or is too long.
    """
    for message in messages:
        found = _REFUSED.search(message.body)
        if found:
            raise BadRequest(
                f"a message has the character U+{ord(found[0]):04X}, which SQS does not take. "
                "JSON can write it as an escape."
            )
        if message.group is not None and not _TOKEN.fullmatch(message.group):
            raise BadRequest(
                f"group is {message.group!r}, but a group in SQS has 1 to 128 characters of "
                "ASCII, and no space"
            )


def new_entry(message: NewMessage, new_id: str) -> Entry:
    """Return the entry that sends a message; `new_id` is its deduplication id if it has none."""
    entry: Entry = {"MessageBody": message.body}
    if message.group is None:
        entry["DelaySeconds"] = whole_seconds(message.delay_s)
    else:
        entry |= _fifo(message.group, message.deduplication_id or new_id)
    if message.message_id is not None:
        entry["MessageAttributes"] = _attributes({_ID: message.message_id})
    return entry


def again_entry(message: ReceivedMessage, new_id: str, delay_s: float = 0.0) -> Entry:
    """Return the entry that sends a message again, as if its last delivery had not been."""
    entry = new_entry(NewMessage(body=message.body, group=message.group, delay_s=delay_s), new_id)
    noted = {_ID: message.message_id, _SENT: message.sent.isoformat()}
    if message.receives > 1:
        noted[_RECEIVES] = str(message.receives - 1)
    return entry | {"MessageAttributes": _attributes(noted)}


def redriven_entry(letter: DeadLetter, new_id: str) -> Entry:
    """Return the entry that sends a dead letter to its queue, as if it was never received."""
    entry = new_entry(NewMessage(body=letter.body, group=letter.group), new_id)
    noted = {_ID: letter.message_id, _SENT: letter.sent.isoformat()}
    return entry | {"MessageAttributes": _attributes(noted)}


def buried_entry(delivery: Delivery, reason: str) -> Entry:
    """Return the entry that sends a message to the dead letters."""
    message = delivery.message
    noted = {
        _ID: message.message_id,
        _SENT: message.sent.isoformat(),
        _RECEIVES: str(message.receives),
        _REASON: _REFUSED.sub("\ufffd", reason)[:_REASON_MAX],
    }
    again = new_entry(NewMessage(body=message.body, group=message.group), delivery.sqs_id)
    return again | {"MessageAttributes": _attributes(noted)}


def batches(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Divide entries into batches that SQS takes, in order.

    No group is in a batch twice: SQS may store a part of a batch, and a message that is sent
    once more would come behind those that were sent after it.
    """
    made: list[list[Entry]] = []
    size_bytes, groups = 0, set[str]()
    for entry in entries:
        entry_bytes, group = _bytes(entry), entry.get("MessageGroupId")
        full = size_bytes + entry_bytes > _BATCH_BYTES_MAX
        if not made or full or len(made[-1]) == BATCH_MAX or group in groups:
            made.append([])
            size_bytes, groups = 0, set()
        made[-1].append(entry)
        size_bytes += entry_bytes
        if group is not None:
            groups.add(group)
    return made


def delivery_of(received: Mapping[str, Any]) -> Delivery:
    """Return a message that SQS returned."""
    noted = _noted(received)
    count = int(received["Attributes"]["ApproximateReceiveCount"])
    message = ReceivedMessage(
        receipt=received["ReceiptHandle"],
        message_id=noted.get(_ID) or received["MessageId"],
        body=received["Body"],
        group=received["Attributes"].get("MessageGroupId"),
        receives=count + _count(noted, default=0),
        sent=_sent(received, noted),
    )
    return Delivery(received["MessageId"], message)


def dead_letter_of(received: Mapping[str, Any], receives_max: int) -> DeadLetter:
    """Return a dead letter that SQS returned.

    One that SQS moved itself was received `receives_max` times. When it was moved is not known:
    it counts from its first delivery.
    """
    noted, attributes = _noted(received), received["Attributes"]
    buried_here = _RECEIVES in noted
    since = "SentTimestamp" if buried_here else "ApproximateFirstReceiveTimestamp"
    return DeadLetter(
        message_id=noted.get(_ID) or received["MessageId"],
        body=received["Body"],
        group=attributes.get("MessageGroupId"),
        reason=noted.get(_REASON, "") if buried_here else received_too_often(receives_max),
        receives=_count(noted, default=receives_max),
        sent=_sent(received, noted),
        buried=_time(attributes.get(since) or attributes["SentTimestamp"]),
    )


def _fifo(group: str, deduplication_id: str) -> Entry:
    """Ids that SQS does not take are hashed: equal ones stay equal."""
    fits = _TOKEN.fullmatch(deduplication_id)
    token = deduplication_id if fits else sha256(deduplication_id.encode()).hexdigest()
    return {"MessageGroupId": group, "MessageDeduplicationId": token}


def _attributes(noted: Mapping[str, str]) -> dict[str, dict[str, str]]:
    return {
        name: {"DataType": "String", "StringValue": value} for name, value in noted.items() if value
    }


def _noted(received: Mapping[str, Any]) -> dict[str, str]:
    """Return attributes that Sleeper noted; anybody who may send can write anything there."""
    found = received.get("MessageAttributes") or {}
    return {name: str(value.get("StringValue") or "") for name, value in found.items()}


def _count(noted: Mapping[str, str], default: int) -> int:
    text = noted.get(_RECEIVES, "")
    fits = text.isascii() and text.isdecimal() and len(text) <= 7  # a million
    return min(int(text), _COUNT_MAX) if fits else default


def _sent(received: Mapping[str, Any], noted: Mapping[str, str]) -> datetime:
    try:
        sent = datetime.fromisoformat(noted.get(_SENT, ""))
    except ValueError:
        sent = None
    if sent is None or sent.utcoffset() != timedelta(0):
        return _time(received["Attributes"]["SentTimestamp"])
    return sent.astimezone(UTC)


def _time(milliseconds: str) -> datetime:
    return _EPOCH + timedelta(milliseconds=int(milliseconds))


def _bytes(entry: Entry) -> int:
    noted = entry.get("MessageAttributes", {})
    texts = [entry["MessageBody"], *noted, *(value["StringValue"] for value in noted.values())]
    return sum(len(text.encode()) for text in texts)


# ---------------------------------------------------------------- sqs results
#
# Queues in SQS that take the rows of queries. They belong to whoever asks, maybe to others.

logger = logging.getLogger(__name__)

_AMAZON: Final = re.compile(
    rf"https://sqs\.([a-z0-9-]+)\.(?:{'|'.join(re.escape(each) for each in DOMAINS)})/"
)
_NO_QUEUE: Final = ("InvalidAddress", "InvalidParameterValue")


class SqsResultsQueue:
    """Sends messages to queues in SQS. Safe for threads.

    Args:
        client: Returns boto3's client of SQS for a region; for None that of this process.
    """

    def __init__(self, client: Callable[[str | None], Any]) -> None:
        self._client = client

    def send(self, url: str, body: str) -> None:
        """Send a message. boto3 sends it again after a lost reply, so it may arrive twice."""
        amazon = _AMAZON.match(url)
        client = self._client(amazon[1] if amazon else None)
        try:
            client.send_message(QueueUrl=url, MessageBody=body)
        except vendor_errors() as error:
            what = f"the queue of results {without_credentials(url)}"
            if is_missing(error) or error_code(error) in _NO_QUEUE:
                raise ObjectNotFound(
                    f"cannot send to {what}: there is no such queue, or it may not be used. Check "
                    "sqsResultsUrl in resultsPublisherConfig; no results queue is made here."
                ) from error
            raise aws_failure(
                error, "send to", what, writes=True, permission="sqs:SendMessage"
            ) from error
        logger.debug("sent %d characters of results to %s", len(body), without_credentials(url))
