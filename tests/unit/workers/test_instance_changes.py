"""Services that notice changed properties of their instance."""

from __future__ import annotations

import logging
from dataclasses import replace

import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import StorageFailed
from sleeper.model.jobs.kinds import QueueName
from sleeper.model.jobs.messages import NewMessage
from sleeper.storage.local.folder import FolderObjects
from sleeper.workers.instance_changes import CurrentInstance, PropertiesLook
from sleeper.workers.maintenance import OnlineTables
from sleeper.workers.open_worker import open_worker
from sleeper.workers.serve.job_services import CurrentTimers
from sleeper.workers.stop_signal import StopSignal
from sleeper.workers.worker import WorkerSettings
from tests.unit.workers.clocks import SimulatedStop

BATCH = "sleeper.gc.batch.size"
DELAY = "sleeper.default.table.gc.delay.minutes"
SCHEMA = pa.schema([("id", pa.string())])


@pytest.fixture
def url(tmp_path):
    with sleeper.connect(tmp_path / "instance", create=True) as made:
        made.create_table("t", SCHEMA, row_keys=["id"])
    return str(tmp_path / "instance")


@pytest.fixture
def current(url):
    return CurrentInstance(sleeper.connect(url), lambda: sleeper.connect(url))


def change(url, changes):
    sleeper.connect(url).set_properties(changes)


def test_the_instance_is_opened_again_after_a_change_only(url, current, caplog):
    """Given looks before and after a change, then one of them opens the instance again."""
    caplog.set_level(logging.INFO, "sleeper")
    first = current()
    assert not current.look(with_jobs=True)
    change(url, {BATCH: 5})

    assert [current.look(with_jobs=True), current.look(with_jobs=True)] == [True, False]

    assert current() is not first
    assert current().properties.gc.batch_files == 5
    changed = f"were changed: {BATCH}, sleeper.properties.version; processes that start now"
    assert changed in caplog.text


def test_storage_that_cannot_be_read_changes_nothing(url, current, monkeypatch, caplog):
    """Given storage that fails at a look, then the instance stays, and the next look sees it."""
    change(url, {BATCH: 5})
    read = FolderObjects.read

    def fail(self, key):
        raise StorageFailed(f"{key}: no answer")

    monkeypatch.setattr(FolderObjects, "read", fail)
    assert not current.look(with_jobs=False)
    assert "whether properties were changed cannot be seen now" in caplog.text
    monkeypatch.setattr(FolderObjects, "read", read)

    assert current.look(with_jobs=False)


def test_properties_that_cannot_be_used_are_not_taken_over(url, caplog):
    """Given a place for jobs that cannot be opened, then the older one stays in use."""
    first = sleeper.connect(url)
    reopened = []

    def reopen():
        reopened.append(sleeper.connect(url))
        raise StorageFailed("the new place for jobs cannot be used")

    current = CurrentInstance(first, reopen)
    change(url, {BATCH: 5})

    assert [current.look(with_jobs=True), current.look(with_jobs=True)] == [False, False]

    assert current() is first
    assert len(reopened) == 2
    assert "older ones stay in use: the new place for jobs cannot be used" in caplog.text


def test_looks_are_a_minute_apart(url, monkeypatch):
    """Given a worker that asks before each message, then the storage is asked once a minute."""
    instance = sleeper.connect(url)
    time = iter([0.0, 10.0, 59.0, 61.0, 62.0])
    clock = replace(instance.clock, ticks_s=lambda: next(time))
    monkeypatch.setattr(instance, "_process", replace(instance._process, clock=clock))
    look = PropertiesLook(instance)
    change(url, {BATCH: 5})

    assert [look() for _ in range(4)] == [False, False, True, True]


def test_tables_are_opened_again_with_the_changed_defaults(url, current):
    """Given a changed default for tables, then the next round of maintenance uses it."""
    tables = OnlineTables(
        current,
        look=lambda: current.look(with_jobs=False),
        is_paused=lambda: False,
    )
    delays = []
    for _ in range(2):
        delays += [each.properties.gc.delay_minutes for each in tables()]
        change(url, {DELAY: 60})

    assert delays == [15, 60]


def test_timers_are_made_again(url, current):
    """Given a timer of a long period, when it is made shorter, then that counts."""
    name = "sleeper.ingest.batcher.job.creation.period.minutes"
    change(url, {name: 600})
    current.look(with_jobs=True)
    timers = CurrentTimers(current, lambda: False)
    assert timers.run_due() == 60
    before = timers._timers

    change(url, {name: 1})
    current.look(with_jobs=True)
    timers.run_due()

    assert timers._timers is not before
    assert sorted(timer.period_s for timer in timers._timers._due) == [60, 600, 3600, 86400]


@pytest.mark.parametrize(("kind", "jobs"), [("ingest", 0), ("ingest", 1), ("commit", 0)])
def test_a_worker_ends_between_two_jobs_when_it_is_outdated(url, kind, jobs):
    """Given messages and a change after some jobs, then the others stay for another worker."""
    instance = sleeper.connect(url)
    queue = instance.jobs.stores.queue(QueueName(kind))
    for number in range(2):
        group = "g" if kind == "commit" else None
        queue.send([NewMessage(body=f"not JSON {number}", group=group)])
    asked = iter([*[False] * jobs, True])
    worker = open_worker(
        instance,
        kind,
        WorkerSettings(wait_s=0, until_empty=True),
        StopSignal(),
        is_outdated=lambda: next(asked),
    )

    worker.run()

    assert queue.depth().ready == 2 - jobs


def test_a_compaction_worker_ends_before_the_next_table_when_it_is_outdated(url):
    """Given a change while it runs, then it takes no other table, and does not wait for more."""
    looks = []
    worker = open_worker(
        sleeper.connect(url),
        "compaction",
        WorkerSettings(wait_s=0),
        SimulatedStop(wait=lambda seconds: looks.append("rest")),
        is_outdated=lambda: len(looks) > 0,
    )

    worker.run()

    assert looks == ["rest"]
