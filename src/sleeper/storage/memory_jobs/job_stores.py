"""Everything that jobs need, in the memory of one process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from sleeper.model.jobs.messages import QueueName, QueueSettings
from sleeper.ports.ids import NewId
from sleeper.storage.memory_jobs.batcher_store import MemoryBatcherStore
from sleeper.storage.memory_jobs.job_queue import MemoryQueue
from sleeper.storage.memory_jobs.job_tracker import MemoryTracker


class MemoryJobStores:
    """Queues, tracker and batcher store, gone with this object.

    Args:
        settings: How queues deliver; one that is missing has the default settings.
        now: The clock (aware, UTC).
        sleep: Waits for so many seconds.
        new_id: Makes ids of messages and receipts.
    """

    def __init__(
        self,
        settings: Mapping[QueueName, QueueSettings],
        *,
        now: Callable[[], datetime],
        sleep: Callable[[float], None],
        new_id: NewId,
    ) -> None:
        self._tracker, self._batcher = MemoryTracker(), MemoryBatcherStore()
        self._queues = {
            name: MemoryQueue(
                name, settings.get(name, QueueSettings()), now=now, sleep=sleep, new_id=new_id
            )
            for name in QueueName
        }

    are_charged = False
    """Nothing is."""

    @property
    def tracker(self) -> MemoryTracker:
        """The events of jobs and tasks."""
        return self._tracker

    @property
    def batcher(self) -> MemoryBatcherStore:
        """The files that were submitted to the ingest batcher."""
        return self._batcher

    def queue(self, name: QueueName) -> MemoryQueue:
        """Return one of the queues, the same each time."""
        return self._queues[name]

    def close(self) -> None:
        """Do nothing: there is nothing to close."""
