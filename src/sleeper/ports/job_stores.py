"""Where an instance keeps its jobs: queues, tracker and batcher store together."""

from __future__ import annotations

from typing import Protocol

from sleeper.model.jobs.messages import QueueName
from sleeper.ports.batcher_store import BatcherStore
from sleeper.ports.job_queue import JobQueue
from sleeper.ports.job_tracker import JobTracker


class JobStores(Protocol):
    """Everything that jobs need beside the tables."""

    @property
    def tracker(self) -> JobTracker:
        """The events of jobs and tasks."""
        ...

    @property
    def batcher(self) -> BatcherStore:
        """The files that were submitted to the ingest batcher."""
        ...

    def queue(self, name: QueueName) -> JobQueue:
        """Return one of the instance's queues."""
        ...

    def close(self) -> None:
        """Close connections that are open."""
        ...
