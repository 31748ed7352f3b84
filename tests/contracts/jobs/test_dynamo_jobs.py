"""Tracker and batcher store in DynamoDB keep every contract, on each server that speaks it."""

from __future__ import annotations

import pytest

from sleeper.storage.aws.jobs.dynamo_batcher_store import DynamoBatcherStore
from sleeper.storage.aws.jobs.dynamo_tracker import DynamoTracker
from tests.contracts.jobs.batcher_store_contract import NOON, BatcherStoreContract
from tests.contracts.jobs.clock import Clock
from tests.contracts.jobs.job_tracker_contract import JobTrackerContract
from tests.contracts.servers.dynamo import dynamo, dynamo_endpoint, pause, tables

__all__ = ["dynamo", "dynamo_endpoint", "tables"]


@pytest.fixture
def clock():
    clock = Clock()
    clock.time = NOON
    return clock


class TestDynamoTracker(JobTrackerContract):
    """A tracker in DynamoDB."""

    counts_expired = False
    jobs_listed = 60  # a page has 50

    @pytest.fixture
    def set_clock(self, clock):
        return lambda time: setattr(clock, "time", time)

    @pytest.fixture
    def tracker(self, tables, clock):
        return DynamoTracker(tables, now=clock.now, pause=pause)


class TestDynamoBatcherStore(BatcherStoreContract):
    """The batcher's files in DynamoDB."""

    counts_expired = False

    @pytest.fixture
    def set_clock(self, clock):
        return lambda time: setattr(clock, "time", time)

    @pytest.fixture
    def batcher(self, tables, clock):
        return DynamoBatcherStore(tables, now=clock.now)
