"""What a queue holds: messages to send, messages that were received, dead letters, its depth."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Final

from sleeper.language.value_classes import dataclass


class QueueName(StrEnum):
    """The queues of an instance. Each has dead letters of its own."""

    INGEST = "ingest"
    BULK_IMPORT = "bulk-import"
    BULK_IMPORT_EMR = "bulk-import-emr"
    BULK_IMPORT_PERSISTENT_EMR = "bulk-import-persistent-emr"
    BULK_IMPORT_EMR_SERVERLESS = "bulk-import-emr-serverless"
    BULK_IMPORT_EKS = "bulk-import-eks"
    BATCHER = "batcher"
    QUERY = "query"
    EXPORT = "export"
    COMMIT = "commit"


BULK_IMPORT_QUEUES: Final = (
    QueueName.BULK_IMPORT,
    QueueName.BULK_IMPORT_EMR,
    QueueName.BULK_IMPORT_PERSISTENT_EMR,
    QueueName.BULK_IMPORT_EMR_SERVERLESS,
    QueueName.BULK_IMPORT_EKS,
)
"""The queues of bulk imports: one for each platform, and one for the worker's own machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """How one queue delivers.

    Attributes:
        fifo: Messages of one group are delivered in order: one receive may return several, and
            while one of them is hidden, no other is delivered.
        visibility_s: Seconds for which a received message is hidden from others.
        receives_max: A message that was received so often without being deleted becomes a dead
            letter at the next receive.
    """

    fifo: bool = False
    visibility_s: float = 900.0
    receives_max: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMessage:
    """A message to send.

    Attributes:
        body: Text, 1 byte to 256 KiB of UTF-8.
        delay_s: Seconds before it can be received; 0 to 900, in a FIFO queue always 0.
        group: Its group in a FIFO queue, which each message there has; None in others.
        deduplication_id: A message with the same id, sent to the queue in the 5 minutes before,
            makes this one count as sent already. Only in FIFO queues.
        is_sent_again: True if a power cut may take the message, because its sender then sends it
            again: it does so while another message of the same stores is there, and deletes that
            one after this was sent.
    """

    body: str
    delay_s: float = 0.0
    group: str | None = None
    deduplication_id: str | None = None
    is_sent_again: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedMessage:
    """A message that was received and is hidden from others until its visibility ends.

    Attributes:
        receipt: Names this delivery. Another delivery of the message makes it stale.
        message_id: Names the message, the same in every delivery.
        body: The text that was sent.
        group: Its group in a FIFO queue.
        receives: How often it was received, this time included.
        sent: When it was sent (aware, UTC).
    """

    receipt: str
    message_id: str
    body: str
    group: str | None
    receives: int
    sent: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A message that is delivered no more.

    Attributes:
        message_id: Names the message.
        body: The text that was sent.
        group: Its group in a FIFO queue.
        reason: Why it is delivered no more.
        receives: How often it had been received.
        sent: When it was sent (aware, UTC).
        buried: When it became a dead letter (aware, UTC).
    """

    message_id: str
    body: str
    group: str | None
    reason: str
    receives: int
    sent: datetime
    buried: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDepth:
    """How many messages a queue has.

    Attributes:
        ready: Messages that are not hidden. In a FIFO queue some may stand behind a hidden one.
        hidden: Messages that are delayed, or received and neither deleted nor visible again.
        dead: Dead letters.
        oldest_s: Seconds since the oldest of them was sent, dead letters aside; None without one,
            and where the queue cannot tell.
    """

    ready: int
    hidden: int
    dead: int
    oldest_s: float | None
