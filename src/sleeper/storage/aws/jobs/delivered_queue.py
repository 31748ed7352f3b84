"""The messages of a queue in SQS that one call of a function has received.

Lambda received them, or the function itself. Whoever did deletes them when all are handled, but for
those that are named as failed.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sleeper.errors import BadRequest, StorageFailed
from sleeper.model.jobs.messages import (
    DELAY_MAX_S,
    DeadLetter,
    NewMessage,
    QueueDepth,
    ReceivedMessage,
    check_hidden,
    check_receive,
)
from sleeper.storage.aws.jobs.sqs_messages import Delivery, delivery_of
from sleeper.storage.aws.jobs.sqs_queue import SqsQueue

logger = logging.getLogger(__name__)


class DeliveredQueue:
    """A `JobQueue` whose receiver gets the records of one call, each once. Safe for threads.

    A message counts as failed until it is deleted or buried. Deleting asks nobody: who received the
    messages deletes them. What else is asked of it is asked of the queue in SQS, which makes dead
    letters by its own redrive policy too.

    Args:
        queue: The queue that the messages came from.
        deliveries: The messages; `delivered` makes one of a record of Lambda's.
        has_time: Asked before each record but the first: whether it may be begun.
        is_over: Asked when a record goes back uncounted: whether it had all the time of the call.
    """

    def __init__(
        self,
        queue: SqsQueue,
        deliveries: Sequence[Delivery],
        *,
        has_time: Callable[[], bool] = lambda: True,
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        self._queue, self._has_time, self._is_over = queue, has_time, is_over
        self._waiting = deque(deliveries)
        self._sqs_ids = {each.message.receipt: each.sqs_id for each in deliveries}
        self._is_first, self._handled = True, 0
        queue.adopt(deliveries)

    def failed(self) -> list[str]:
        """Return the ids, in SQS, of the records that Lambda must not delete, in order."""
        return list(self._sqs_ids.values())

    def handled(self) -> int:
        """Return how many messages were deleted or buried: what was given back was not handled."""
        return self._handled

    def release_waiting(self, delay_s: float = 0.0) -> None:
        """Give back the records that were not begun: these deliveries are not counted.

        Where SQS does not answer, they come again when their visibility ends.
        """
        while self._waiting:
            receipt = self._waiting.popleft().message.receipt
            logger.info("%s goes back to its queue, not begun", self._sqs_ids[receipt])
            try:
                self._release_uncounted(receipt, delay_s)
            except StorageFailed as failure:
                logger.warning("%s comes again later: %s", self._sqs_ids[receipt], failure)

    def send(self, messages: Sequence[NewMessage]) -> None:
        """Send messages to the queue."""
        self._queue.send(messages)

    def receive(
        self, count_max: int = 1, *, wait_s: float = 0.0, visibility_s: float | None = None
    ) -> list[ReceivedMessage]:
        """Return the next records. How long they are hidden is the queue's setting."""
        check_receive(count_max, wait_s, 0.0 if visibility_s is None else visibility_s)
        if not self._is_first and not self._has_time():
            return []
        self._is_first = False
        count = min(count_max, len(self._waiting))
        return [self._waiting.popleft().message for _ in range(count)]

    def extend(self, receipt: str, visibility_s: float) -> bool:
        """Hide a message from now on."""
        check_hidden(visibility_s, "visibility_s")
        return receipt in self._sqs_ids and self._queue.extend(receipt, visibility_s)

    def release(self, receipt: str, delay_s: float = 0.0, *, counted: bool = True) -> bool:
        """Let a message be received again. A delivery that had all the time of the call is counted.

        Else a job that takes more time than a call has would come again for ever.
        """
        check_hidden(delay_s, "delay_s")
        if receipt not in self._sqs_ids:
            return False
        if counted or self._is_over():
            return self._queue.release(receipt, delay_s)
        return self._release_uncounted(receipt, delay_s)

    def delete(self, receipts: Sequence[str]) -> list[bool]:
        """Let Lambda delete messages."""
        deleted = [self._sqs_ids.pop(receipt, None) is not None for receipt in receipts]
        self._handled += sum(deleted)
        return deleted

    def bury(self, receipt: str, reason: str) -> bool:
        """Send a message to the dead letters, with the reason."""
        if receipt not in self._sqs_ids or not self._queue.bury(receipt, reason):
            return False
        del self._sqs_ids[receipt]
        self._handled += 1
        return True

    def dead_letters(self, count_max: int = 100) -> list[DeadLetter]:
        """Return the queue's dead letters."""
        return self._queue.dead_letters(count_max)

    def dead_letter(self, message_id: str) -> DeadLetter | None:
        """Return None: SQS finds no message by its id."""
        return self._queue.dead_letter(message_id)

    def redrive(self, message_ids: Sequence[str] | None = None) -> int:
        """Send dead letters to the queue."""
        return self._queue.redrive(message_ids)

    def delete_dead_letters(self, message_ids: Sequence[str] | None = None) -> int:
        """Delete dead letters of the queue."""
        return self._queue.delete_dead_letters(message_ids)

    def ready(self) -> int:
        """Return how many records are left."""
        return len(self._waiting)

    def depth(self) -> QueueDepth:
        """Return the numbers of the queue."""
        return self._queue.depth()

    def _release_uncounted(self, receipt: str, delay_s: float) -> bool:
        """Release a message; unless the queue is FIFO, another one stands for it then."""
        released = self._queue.release(receipt, delay_s, counted=False)
        if released and not self._queue.is_fifo and delay_s <= DELAY_MAX_S:
            del self._sqs_ids[receipt]
        return released


def delivered(record: Mapping[str, Any]) -> Delivery:
    """Return the delivery that a record of Lambda has.

    Raises:
        BadRequest: it is no record of SQS.
    """
    try:
        noted = record.get("messageAttributes") or {}
        return delivery_of(
            {
                "MessageId": record["messageId"],
                "ReceiptHandle": record["receiptHandle"],
                "Body": record["body"],
                "Attributes": record["attributes"],
                "MessageAttributes": {
                    name: {"StringValue": value.get("stringValue")} for name, value in noted.items()
                },
            }
        )
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise BadRequest(
            f"not a record of SQS ({type(error).__name__}: {error}): this function takes what the "
            "event source mapping of a queue sends"
        ) from error
