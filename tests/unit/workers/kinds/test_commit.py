"""When a committer ends: by the same rules as other workers."""

from __future__ import annotations

import pytest

from sleeper.errors import StorageFailed
from sleeper.model.jobs.kinds import QueueName
from sleeper.storage.local.jobs.job_queue import SqliteQueue
from sleeper.workers.open_worker import open_worker
from sleeper.workers.worker import WorkerSettings
from tests.stories.test_ingest_jobs import instance, work, written
from tests.unit.workers.clocks import SimulatedStop

__all__ = ["instance"]


@pytest.fixture
def requests(instance, tmp_path):
    """Three requests in the commit queue, which is returned."""
    changes = {"sleeper.table.statestore.commit.async.enabled": "true"}
    instance.table("numbers").set_properties(changes)
    for number in range(3):
        path = written(tmp_path / f"{number}.parquet", number)
        instance.jobs.submit_ingest("numbers", path)
    assert work(instance) == 3
    return instance.jobs.stores.queue(QueueName.COMMIT)


@pytest.mark.parametrize(("jobs_max", "answered"), [(1, 1), (2, 2), (3, 3), (9, 3), (None, 3)])
def test_a_committer_ends_after_as_many_requests_as_it_was_asked_for(
    instance, requests, jobs_max, answered
):
    """It takes no more messages than those."""
    settings = WorkerSettings(wait_s=0, until_empty=True, jobs_max=jobs_max)

    done = open_worker(instance, "commit", settings, SimulatedStop()).run()

    assert done.jobs == answered
    assert instance.table("numbers").query().count() == answered
    assert requests.depth().ready == 3 - answered


def test_a_committer_that_ends_when_its_queue_is_empty_ends_when_it_cannot_be_read(
    instance, requests, monkeypatch, caplog
):
    """Given a queue without an answer, when it was tried three times, then the worker fails."""

    def fail(*_, **__):
        raise StorageFailed("no answer")

    monkeypatch.setattr(SqliteQueue, "receive", fail)
    waits = []
    settings = WorkerSettings(wait_s=0, until_empty=True)

    with pytest.raises(StorageFailed, match="no answer"):
        open_worker(instance, "commit", settings, SimulatedStop(wait=waits.append)).run()

    assert waits == [5.0, 5.0]
    assert "the commit queue cannot be used now: no answer" in caplog.text
