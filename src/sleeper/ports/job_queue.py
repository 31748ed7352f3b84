"""The interface of message queues with at-least-once delivery, like SQS."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sleeper.model.jobs.messages import DeadLetter, NewMessage, QueueDepth, ReceivedMessage


class JobQueue(Protocol):
    """One queue with its dead letters. Safe for threads and for several processes.

    A message is delivered until it is deleted: to one receiver at a time, and again after its
    visibility timeout. So handling a message must be idempotent. Without FIFO, messages come
    roughly in the order in which they were sent; the order is not guaranteed.

    A receipt becomes stale when its message is delivered again or deleted. Not every queue can
    tell every stale receipt (SQS cannot): where it says that it is stale, it is; where a method
    returns True, the message may have been delivered again since.

    Every method raises `StorageFailed` (`StorageFull` if a disk is full) if the queue cannot be
    reached; the operation may or may not have been done.
    """

    def send(self, messages: Sequence[NewMessage]) -> None:
        """Store messages durably, in order. On failure, some of them may have been stored.

        Of those that are sent again a power cut may take the last, with all that was sent to or
        deleted from any queue of the same stores after them.

        Raises:
            BadRequest: a body is empty or too large, a delay is too long, or the queue does not
                accept the message's group. No message was stored.
        """
        ...

    def receive(
        self, count_max: int = 1, *, wait_s: float = 0.0, visibility_s: float | None = None
    ) -> list[ReceivedMessage]:
        """Return messages, hidden from other receivers for a time; an empty list if none is ready.

        Args:
            count_max: Maximum number; 1 to 100. Fewer may be returned though more are ready.
            wait_s: How long to wait for the first one; 0 to 20 seconds.
            visibility_s: How long they are hidden, at most 12 hours; None for the queue's
                default.

        Raises:
            BadRequest: an argument is out of its range.
        """
        ...

    def extend(self, receipt: str, visibility_s: float) -> bool:
        """Hide a message for a number of seconds from now on; False if the receipt is stale."""
        ...

    def release(self, receipt: str, delay_s: float = 0.0, *, counted: bool = True) -> bool:
        """Make a message visible again after a delay; False if the receipt is stale.

        Args:
            receipt: The receipt.
            delay_s: Seconds until it is visible; 0 to 12 hours.
            counted: False: this delivery is not counted, so it does not bring the message nearer
                to the dead letters. For a receiver that was asked to end. A FIFO queue may count
                it all the same, and so may a delay of more than 15 minutes.
        """
        ...

    def delete(self, receipts: Sequence[str]) -> list[bool]:
        """Delete handled messages; return False for each whose receipt is stale.

        A stale receipt deletes nothing: the message was delivered again since. A receipt
        whose visibility has ended becomes stale only then; in a FIFO queue it may be at once.
        """
        ...

    def bury(self, receipt: str, reason: str) -> bool:
        """Make a message a dead letter at once; False if the receipt is stale.

        For messages that this process received lately: of older ones a queue may not know enough
        any more, and then says that they are stale.
        """
        ...

    def dead_letters(self, count_max: int = 100) -> list[DeadLetter]:
        """Return dead letters, oldest first, without removing them.

        They may be hidden from other callers for a moment.
        """
        ...

    def redrive(self, message_ids: Sequence[str] | None = None) -> int:
        """Move dead letters back to the queue, as if never received; return how many.

        Args:
            message_ids: The dead letters to move; None for all.
        """
        ...

    def delete_dead_letters(self, message_ids: Sequence[str] | None = None) -> int:
        """Delete dead letters permanently; return how many. None deletes all."""
        ...

    def ready(self) -> int:
        """Return how many messages wait, as in `depth`, in one request."""
        ...

    def depth(self) -> QueueDepth:
        """Return the number of messages; approximate, where others use the queue meanwhile."""
        ...
