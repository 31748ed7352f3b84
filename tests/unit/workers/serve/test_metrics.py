"""What serve tells a monitoring system over HTTP."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from datetime import timedelta
from typing import NamedTuple

import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import PropertiesInvalid, StorageFailed
from sleeper.jobs.instance_jobs import InstanceJobs
from sleeper.model.jobs.events import JobEvent, JobEventType
from sleeper.model.jobs.kinds import JobKind, QueueName
from sleeper.model.jobs.messages import QueueDepth
from sleeper.workers.maintenance import OnlineTables
from sleeper.workers.serve.fleet import WorkerFleet
from sleeper.workers.serve.metrics import Metrics, MetricsServer, NoWorkers, TableFigures
from tests.patience import PATIENCE_S
from tests.unit.workers.clocks import clock_of


def no_worker(kind):
    raise OSError(f"no {kind}")


@pytest.fixture
def fleet():
    """A fleet with a message that no worker can be started for."""
    return WorkerFleet(
        start=no_worker, ready=lambda _: 1, workers_max={"ingest": 2}, clock=clock_of(lambda: 100.0)
    )


@pytest.fixture
def jobs():
    """Jobs of an instance with one message."""
    jobs = sleeper.connect("memory://").jobs
    jobs.send("ingest", "{}")
    return jobs


class WithJobs(NamedTuple):
    """What metrics ask an instance for."""

    jobs: InstanceJobs


class WithoutJobs:
    """An instance in a bucket, of which nobody has said where its jobs are."""

    @property
    def jobs(self):
        raise PropertiesInvalid({"sleeper.jobs.url": "sleeper.jobs.url is not set"})


class Ticks:
    """A clock that is set by hand."""

    now_s = 1000.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def ticks():
    return Ticks()


@pytest.fixture
def tables(ticks):
    return TableFigures(clock_of(ticks))


@pytest.fixture
def ask(jobs, fleet, tables, ticks):
    """Ask the server for a path; return status and text."""
    with MetricsServer(
        Metrics(lambda: WithJobs(jobs), lambda: fleet, tables, clock_of(ticks)), "127.0.0.1", 0
    ) as server:

        def ask(path):
            try:
                with urllib.request.urlopen(
                    f"http://127.0.0.1:{server.port}{path}", timeout=PATIENCE_S
                ) as answer:
                    return answer.status, answer.read().decode()
            except urllib.error.HTTPError as error:
                return error.code, error.read().decode()

        yield ask


def test_queues_and_workers_are_told_as_prometheus_reads_them(ask):
    """Each figure has its help and type, and labels."""
    status, text = ask("/metrics")

    assert status == 200
    assert '\nsleeper_queue_messages_ready{queue="ingest"} 1\n' in text
    assert '\nsleeper_queue_dead_letters{queue="ingest"} 0\n' in text
    assert '\nsleeper_workers{kind="ingest"} 0\n' in text
    assert text.startswith("# HELP sleeper_queue_messages_ready Messages that wait for a worker.\n")


def test_an_age_that_a_queue_cannot_tell_is_left_out(ask, jobs, monkeypatch):
    """It is no age of 0 seconds, for which nobody would be alarmed; empty queues have that one."""
    some = QueueDepth(ready=1, hidden=0, dead=0, oldest_s=None)
    none = QueueDepth(ready=0, hidden=0, dead=1, oldest_s=None)
    depths = {QueueName.INGEST: some, QueueName.QUERY: none}
    monkeypatch.setattr(type(jobs), "queue_depths", lambda _: depths)

    _, text = ask("/metrics")

    assert 'sleeper_queue_oldest_seconds{queue="ingest"}' not in text
    assert 'sleeper_queue_oldest_seconds{queue="query"} 0.000\n' in text


def test_it_is_healthy_until_something_cannot_work(ask, fleet, jobs, monkeypatch):
    """503 comes with every reason."""
    assert ask("/healthz") == (200, json.dumps({"healthy": True, "reasons": []}))

    for _ in range(3):
        fleet.look()
    monkeypatch.setattr(
        type(jobs), "queue_depths", lambda _: (_ for _ in ()).throw(StorageFailed("disk full"))
    )
    status, text = ask("/healthz")

    assert status == 503
    assert json.loads(text)["reasons"] == [
        "ingest workers keep failing, and none is started for a while",
        "the queues cannot be read: disk full",
    ]
    assert ask("/metrics") == (503, "disk full\n")
    assert ask("/secrets")[0] == 404


def test_files_of_leaves_are_told_as_maintenance_saw_them(ask, tables, ticks):
    """Given a round of maintenance, then each online table is told, with its age, without a look."""
    instance = sleeper.connect("memory://")
    schema = pa.schema([("id", pa.int64())])
    one = instance.create_table('the "one"', schema, row_keys=["id"], split_points=[10])
    two = instance.create_table("two", schema, row_keys=["id"])
    for ids in ([1, 11], [1], [1]):
        one.ingest([{"id": each} for each in ids])
    online = OnlineTables(lambda: instance, is_paused=lambda: False)
    online.figures = tables
    list(online())
    two.set_online(online=False)
    ticks.now_s += 60
    list(online())
    one.ingest([{"id": 1}])
    ticks.now_s += 30

    _, text = ask("/metrics")

    labels = '{table="the \\"one\\""}'
    assert f"\nsleeper_table_leaf_files_mean{labels} 2\n" in text
    assert f"\nsleeper_table_leaf_files_max{labels} 3\n" in text
    assert f"\nsleeper_table_age_seconds{labels} 30\n" in text
    assert "two" not in text


def test_commits_are_told_by_who_made_them(ask, jobs, ticks):
    """Those of workers and of the committer, of the last ten minutes; counted once a minute."""
    now = jobs.recorder.now()

    def committed(job_id, seconds, kind=JobKind.INGEST, by=JobEventType.FINISHED, ago_s=0.0):
        jobs.recorder.record(
            JobEvent(
                kind=kind,
                table_id="t",
                job_id=job_id,
                type=by,
                at=now - timedelta(seconds=ago_s),
                run_id="r",
                commit_s=seconds,
            )
        )

    committed("a", 0.25)
    committed("b", 0.5)
    committed("c", 4.0)
    committed("old", 60.0, ago_s=3600)
    committed("d", 7.0, by=JobEventType.ADDED_FILES)
    committed("e", 1.0, kind=JobKind.COMPACTION)

    _, text = ask("/metrics")
    committed("f", 9.0)
    _, same = ask("/metrics")
    ticks.now_s += 61
    _, later = ask("/metrics")

    assert '\nsleeper_commit_seconds_median{kind="ingest",by="worker"} 0.500\n' in text
    assert '\nsleeper_commit_seconds_max{kind="ingest",by="worker"} 4.000\n' in text
    assert '\nsleeper_commit_seconds_max{kind="ingest",by="committer"} 7.000\n' in text
    assert '\nsleeper_commit_seconds_max{kind="compaction",by="worker"} 1.000\n' in text
    assert '\nsleeper_jobs{kind="ingest",state="FINISHED"} 4\n' in text
    assert '\nsleeper_commit_seconds_max{kind="ingest",by="worker"} 4.000\n' in same
    assert '\nsleeper_commit_seconds_max{kind="ingest",by="worker"} 9.000\n' in later


def test_an_instance_without_jobs_has_its_tables_alone(tables):
    """Given no place for jobs, then it is healthy, and tables are told."""
    table = sleeper.connect("memory://").create_table(
        "t", pa.schema([("id", pa.int64())]), row_keys=["id"]
    )
    tables.note("t", 1, table.report_files)

    metrics = Metrics(WithoutJobs, NoWorkers, tables, clock_of(lambda: 1000.0))

    assert metrics.problems() == []
    assert 'sleeper_table_age_seconds{table="t"} 0\n' in metrics.text()
    assert "sleeper_queue" not in metrics.text()
    assert "sleeper_jobs" not in metrics.text()


def test_compactions_that_are_left_to_workers_are_counted(ask, tables):
    """Given tables whose jobs were counted, then each has a figure until it is gone."""
    table = sleeper.connect("memory://").create_table(
        "t", pa.schema([("id", pa.int64())]), row_keys=["id"]
    )
    for name in ("kept", "gone"):
        tables.note(name, 1, table.report_files)
        tables.note_compactions(name, 3)
    tables.note("other", 1, table.report_files)
    tables.keep({"kept", "other"})

    _, text = ask("/metrics")

    counted = [line for line in text.splitlines() if line.startswith("sleeper_compaction_jobs")]
    assert counted == ['sleeper_compaction_jobs{table="kept"} 3']
