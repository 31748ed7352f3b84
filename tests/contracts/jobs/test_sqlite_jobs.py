"""Queues, tracker and batcher store in a SQLite file keep every contract."""

from __future__ import annotations

import pytest

from sleeper.model.jobs.kinds import QueueName
from sleeper.model.jobs.messages import NewMessage
from sleeper.storage.local.jobs.database import JobDatabase
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
def stores(clock, tmp_path):
    path = tmp_path / "services" / "jobs.sqlite"
    new_id = numbered("id-")
    stores = SqliteJobStores(path, SETTINGS, now=clock.now, sleep=clock.sleep, new_id=new_id)
    yield stores
    stores.close()


class TestSqliteQueue(JobQueueTimesContract, QueueClockContract):
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


class TestSyncs:
    """What a power cut may take is written without a sync; all else is synced."""

    @pytest.fixture
    def synced(self, stores, monkeypatch):
        """Whether each transaction that writes was synced."""
        synced = []
        writing = JobDatabase.writing

        def watched(database, *, durable):
            synced.append(durable)
            return writing(database, durable=durable)

        monkeypatch.setattr(JobDatabase, "writing", watched)
        return synced

    def test_a_message_is_synced_unless_it_is_sent_again(self, stores, synced):
        """One message that nobody sends again is enough."""
        queue = stores.queue(QueueName.COMMIT)
        again = NewMessage(body="again", group="t", is_sent_again=True)

        queue.send([again])
        queue.send([NewMessage(body="once", group="t")])
        queue.send([again, NewMessage(body="once", group="t")])

        assert synced == [False, True, True]
        assert [each.body for each in queue.receive(10)] == ["again", "once", "again", "once"]

    def test_receipts_and_deletions_are_not_synced(self, stores, synced):
        """Without them the message is delivered again."""
        queue = stores.queue(QueueName.INGEST)
        queue.send([NewMessage(body="job")])

        queue.delete([each.receipt for each in queue.receive()])

        assert synced == [True, False, False]
