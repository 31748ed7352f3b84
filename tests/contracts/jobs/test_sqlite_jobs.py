"""Queues, tracker and batcher store in a SQLite file keep every contract."""

from __future__ import annotations

import pytest

from sleeper.storage.local.jobs.job_stores import SqliteJobStores
from tests.contracts.jobs.batcher_store_contract import BatcherStoreContract
from tests.contracts.jobs.clock import Clock, numbered
from tests.contracts.jobs.job_queue_contract import (
    SETTINGS,
    JobQueueContract,
    QueueClockContract,
)
from tests.contracts.jobs.job_tracker_contract import JobTrackerContract


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def stores(clock, tmp_path):
    path = tmp_path / "services" / "jobs.sqlite"
    new_id = numbered("id-")
    stores = SqliteJobStores(path, SETTINGS, now=clock.now, sleep=clock.sleep, new_id=new_id)
    yield stores
    stores.close()


class TestSqliteQueue(JobQueueContract, QueueClockContract):
    """A queue in a SQLite file."""

    @pytest.fixture
    def wait(self, clock):
        return clock.sleep


class TestSqliteTracker(JobTrackerContract):
    """A tracker in a SQLite file."""

    @pytest.fixture
    def tracker(self, stores):
        return stores.tracker


class TestSqliteBatcherStore(BatcherStoreContract):
    """The batcher's files in a SQLite file."""

    @pytest.fixture
    def batcher(self, stores):
        return stores.batcher
