"""Functions of Lambda that take the messages of a queue when they are called.

Nothing asks such a queue for messages while it is empty, for each request is paid for:

1. Who sends a message that somebody waits for calls the function. It takes messages until there
   are none.
2. A schedule counts the messages of the queue each minute, and calls the function for what waits.

The queue alone says what is to be done. A call has no message in it: one that is lost, refused,
throttled or made twice loses nothing and does nothing twice. What waits is then late by a minute.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

from sleeper.errors import StorageFailed
from sleeper.model.jobs.kinds import QueueName
from sleeper.storage.aws.clients import aws_failure, vendor_errors

WAITING: Final = "waiting"
"""What an event has that asks a function to take what waits; its value names the queue."""

CALLS_MAX: Final = 10
"""Calls for one queue in a minute, at most: each goes on while there are messages."""

_TAKEN_AT_ONCE: Final = 10  # in one receive
_GIVEN_UP: Final = timedelta(minutes=10)

logger = logging.getLogger(__name__)


def call_function(client: Any, function: str, queue: QueueName) -> None:
    """Call a function that takes the messages of a queue; do not wait for it.

    Args:
        client: A client of Lambda.
        function: Its full name.
        queue: The queue.

    Raises:
        StorageFailed: Lambda does not answer, or refuses.
    """
    event = json.dumps({WAITING: queue}).encode()
    try:
        client.invoke(FunctionName=function, InvocationType="Event", Payload=event)
    except vendor_errors() as error:
        raise aws_failure(
            error,
            "call",
            f"the function {function}",
            writes=True,
            permission="lambda:InvokeFunction",
        ) from error


def calls_for(waiting: int, *, in_order: bool) -> int:
    """Return how often to call a function for messages that wait.

    Args:
        waiting: How many wait.
        in_order: Whether the queue keeps them in order: then several are taken at once.
    """
    wanted = -(-waiting // _TAKEN_AT_ONCE) if in_order else waiting
    return min(wanted, CALLS_MAX)


class SendersCall:
    """Calls the function of a queue after messages were sent. Safe for threads.

    A failure is logged, and then nothing is called for ten minutes: the schedule does that within
    a minute, so no sender fails, and none waits for a service that it cannot reach.

    Args:
        client: Returns a client of Lambda that gives up soon.
        function: The full name of the function.
        queue: The queue.
        now: The clock (aware, UTC).
    """

    def __init__(
        self,
        client: Callable[[], Any],
        function: str,
        queue: QueueName,
        *,
        now: Callable[[], datetime],
    ) -> None:
        self._client, self._function, self._queue, self._now = client, function, queue, now
        self._again: datetime | None = None

    def __call__(self) -> None:
        """Call it."""
        if self._again is not None and self._now() < self._again:
            return
        try:
            call_function(self._client(), self._function, self._queue)
        except StorageFailed as failure:
            self._again = self._now() + _GIVEN_UP
            logger.warning(
                "messages of the %s queue are taken up to a minute later for now: %s",
                self._queue,
                failure,
            )
