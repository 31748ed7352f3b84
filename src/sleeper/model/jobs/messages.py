"""What a queue holds: messages to send, messages that were received, dead letters, its depth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sleeper.errors import BadRequest
from sleeper.html.values import NotebookHtml
from sleeper.model.jobs.kinds import QueueName


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """How one queue delivers.

    Attributes:
        fifo: Messages of one group are delivered in order: one receive may return several, and
            while one of them is hidden, no other is delivered.
        visibility_s: Seconds for which a received message is hidden from others.
        receives_max: A message that was received so often without being deleted becomes a dead
            letter at the next receive.
        function: In AWS, the function that takes the messages and waits for a call, after the
            instance's prefix; None where something asks the queue all the time, or now and then.
    """

    fifo: bool = False
    visibility_s: float = 900.0
    receives_max: int = 3
    function: str | None = None


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
        message_id: What names it in every delivery; None for an id that the queue makes.
    """

    body: str
    delay_s: float = 0.0
    group: str | None = None
    deduplication_id: str | None = None
    is_sent_again: bool = False
    message_id: str | None = None


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
class DeadLetter(NotebookHtml):
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
class QueueDepth(NotebookHtml):
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


# ---------------------------------------------------------------- message rules
#
# Limits of messages and calls, mostly those of SQS, and times that all queues use.

BODY_BYTES_MAX: Final = 262_144
RECEIVED_MAX: Final = 100
WAIT_MAX_S: Final = 20.0
DELAY_MAX_S: Final = 900.0
HIDDEN_MAX_S: Final = 43_200.0

DEDUPLICATION: Final = timedelta(seconds=300)
"""How long a deduplication id is remembered after the message that had it was sent."""

CLOCK_STEP: Final = timedelta(seconds=60)
"""A time that is further ahead than this was noted before the clock was set back.

What was hidden since such a time is hidden no more, or it would be until the clock is there again.
"""


def check_new_messages(
    messages: Sequence[NewMessage], queue: QueueName, settings: QueueSettings
) -> None:
    """Check messages before any of them is sent.

    Raises:
        BadRequest: a body is empty or too large, a delay is not allowed, or group and queue do
            not fit.
    """
    for message in messages:
        _check_body(message.body, queue)
        if not 0 <= message.delay_s <= DELAY_MAX_S:
            raise BadRequest(
                f"delay_s is {message.delay_s!r}, but a message to queue {queue!r} can be "
                f"delayed by 0 to {DELAY_MAX_S:.0f} seconds"
            )
        if settings.fifo and not message.group:
            raise BadRequest(f"queue {queue!r} is FIFO: give each message a group")
        if settings.fifo and message.delay_s:
            raise BadRequest(f"queue {queue!r} is FIFO: its messages cannot have a delay_s each")
        if not settings.fifo and (message.group, message.deduplication_id) != (None, None):
            raise BadRequest(f"queue {queue!r} is not FIFO: leave out group and deduplication_id")


def _check_body(body: str, queue: QueueName) -> None:
    try:
        size_bytes = len(body.encode())
    except UnicodeEncodeError:
        raise BadRequest(
            f"a message to queue {queue!r} is no Unicode text: it has half of a surrogate pair"
        ) from None
    if not 0 < size_bytes <= BODY_BYTES_MAX:
        raise BadRequest(
            f"a message to queue {queue!r} has {size_bytes:,} bytes of UTF-8, but it must have 1 "
            f"to {BODY_BYTES_MAX:,}. Split it into several, or name files that hold the rest."
        )


def check_receive(count_max: int, wait_s: float, visibility_s: float) -> None:
    """Check the arguments of a receive.

    Raises:
        BadRequest: one of them is out of its range.
    """
    if not 1 <= count_max <= RECEIVED_MAX:
        raise BadRequest(f"count_max is {count_max!r}, but it must be 1 to {RECEIVED_MAX}")
    if not 0 <= wait_s <= WAIT_MAX_S:
        raise BadRequest(f"wait_s is {wait_s!r}, but it must be 0 to {WAIT_MAX_S:.0f} seconds")
    check_hidden(visibility_s, "visibility_s")


def check_hidden(seconds: float, argument: str) -> None:
    """Check for how long a message is to be hidden.

    Raises:
        BadRequest: it is negative, or more than twelve hours.
    """
    if not 0 <= seconds <= HIDDEN_MAX_S:
        raise BadRequest(
            f"{argument} is {seconds!r}, but it must be 0 to {HIDDEN_MAX_S:.0f} seconds"
        )


def received_too_often(receives: int) -> str:
    """Return the reason of a dead letter that nobody buried."""
    return f"received {receives} times, and never deleted"
