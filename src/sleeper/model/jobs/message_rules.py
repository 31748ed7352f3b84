"""Limits of messages and calls, mostly those of SQS, and times that all queues use."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from sleeper.errors import BadRequest
from sleeper.model.jobs.messages import NewMessage, QueueName, QueueSettings

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
