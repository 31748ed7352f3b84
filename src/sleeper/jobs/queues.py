"""What waits in queues, and the messages that are delivered no more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sleeper.jobs.jobs_handle import JobsHandle, queue_name
from sleeper.model.jobs.messages import DeadLetter, QueueDepth, QueueName


def queue_depths(self: JobsHandle) -> Mapping[QueueName, QueueDepth]:
    """Return how many messages each queue has."""
    return {name: self.stores.queue(name).depth() for name in QueueName}


def dead_letters(
    self: JobsHandle, queue: QueueName | str, *, limit: int = 100
) -> Sequence[DeadLetter]:
    """Return messages of a queue that are delivered no more, oldest first."""
    return self.stores.queue(queue_name(queue)).dead_letters(limit)


def redrive(
    self: JobsHandle, queue: QueueName | str, message_ids: Sequence[str] | None = None
) -> int:
    """Put dead letters back into their queue, all or those named; return how many."""
    return self.stores.queue(queue_name(queue)).redrive(message_ids)


def delete_dead_letters(
    self: JobsHandle, queue: QueueName | str, message_ids: Sequence[str] | None = None
) -> int:
    """Delete dead letters for ever, all or those named; return how many."""
    return self.stores.queue(queue_name(queue)).delete_dead_letters(message_ids)
