"""Queues, tracker and batcher store in memory keep every contract."""

from __future__ import annotations

import pytest

from sleeper.storage.local.jobs.job_stores import SqliteJobStores
from tests.contracts.jobs.batcher_store_contract import BatcherStoreContract
from tests.contracts.jobs.clock import Clock, numbered
from tests.contracts.jobs.job_queue_contract import (
    SETTINGS,
    JobQueueTimesContract,
    QueueClockContract,
)
from tests.contracts.jobs.job_tracker_contract import JobTrackerContract


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def stores(clock):
    stores = SqliteJobStores(
        None, SETTINGS, now=clock.now, sleep=clock.sleep, new_id=numbered("id-")
    )
    yield stores
    stores.close()


class TestMemoryQueue(JobQueueTimesContract, QueueClockContract):
    """A queue in SQLite, in memory."""

    @pytest.fixture
    def wait(self, clock):
        return clock.sleep


class TestMemoryTracker(JobTrackerContract):
    """A tracker in SQLite, in memory."""

    @pytest.fixture
    def tracker(self, stores):
        return stores.tracker


class TestMemoryBatcherStore(BatcherStoreContract):
    """The batcher's files in SQLite, in memory."""

    @pytest.fixture
    def batcher(self, stores):
        return stores.batcher
