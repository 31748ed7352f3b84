"""Queues of messages that are delivered at least once, as SQS has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sleeper.model.jobs.messages import DeadLetter, NewMessage, QueueDepth, ReceivedMessage


class JobQueue(Protocol):
    """One queue with its dead letters. Safe for threads, and for processes that open it each.

    A message is delivered until it is deleted: to one receiver at a time, then again after its
    visibility has ended. Whoever handles a message must therefore be safe to repeat. Without
    FIFO, order is roughly that of sending and promised to nobody.

    Every method raises `StorageFailed` (`StorageFull` where a disk is full) when the queue cannot
    be reached; what was asked for may then have been done or not.
    """

    def send(self, messages: Sequence[NewMessage]) -> None:
        """Store messages durably, in order. On failure, some of them may have been stored.

        Raises:
            BadRequest: a body is empty or too large, a delay is too long, or group and queue do
                not fit. None of them was stored.
        """
        ...

    def receive(
        self, count_max: int = 1, *, wait_s: float = 0.0, visibility_s: float | None = None
    ) -> list[ReceivedMessage]:
        """Return messages, hidden from other receivers for a time; none when none is ready.

        Args:
            count_max: How many at most; 1 to 10.
            wait_s: How long to wait for a first one; 0 to 20 seconds.
            visibility_s: How long they are hidden, 12 hours at most; None for the queue's own
                time.

        Raises:
            BadRequest: an argument is out of its range.
        """
        ...

    def extend(self, receipt: str, visibility_s: float) -> bool:
        """Hide a message for so many seconds from now on; False when the receipt is stale."""
        ...

    def release(self, receipt: str, delay_s: float = 0.0) -> bool:
        """Make a message visible again after a delay; False when the receipt is stale."""
        ...

    def delete(self, receipts: Sequence[str]) -> list[bool]:
        """Delete messages that were handled; for each, False when its receipt is stale.

        A stale receipt deletes nothing: the message was delivered to another since. A receipt
        whose visibility has ended is not stale before that.
        """
        ...

    def bury(self, receipt: str, reason: str) -> bool:
        """Make a message a dead letter at once; False when the receipt is stale."""
        ...

    def dead_letters(self, count_max: int = 100) -> list[DeadLetter]:
        """Return dead letters, oldest first, and leave them where they are."""
        ...

    def redrive(self, message_ids: Sequence[str] | None = None) -> int:
        """Make dead letters messages again, ready and never received; return how many.

        Args:
            message_ids: Which; None for all.
        """
        ...

    def delete_dead_letters(self, message_ids: Sequence[str] | None = None) -> int:
        """Delete dead letters for ever, and return how many. None names all."""
        ...

    def depth(self) -> QueueDepth:
        """Return how many messages there are."""
        ...
