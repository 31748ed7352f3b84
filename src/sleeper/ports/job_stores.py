"""The interface for all stores of jobs of an instance: queues, tracker and batcher store."""

from __future__ import annotations

from typing import Protocol

from sleeper.model.jobs.messages import QueueName
from sleeper.ports.batcher_store import BatcherStore
from sleeper.ports.job_queue import JobQueue
from sleeper.ports.job_tracker import JobTracker


class JobStores(Protocol):
    """The stores that jobs need in addition to tables."""

    @property
    def are_charged(self) -> bool:
        """Whether each request costs money, so that nobody should look more often than needed."""
        ...

    @property
    def tracker(self) -> JobTracker:
        """The tracker of jobs and tasks."""
        ...

    @property
    def batcher(self) -> BatcherStore:
        """The store of files submitted to the ingest batcher."""
        ...

    def queue(self, name: QueueName) -> JobQueue:
        """Return one of the instance's queues."""
        ...

    def close(self) -> None:
        """Close open connections."""
        ...
