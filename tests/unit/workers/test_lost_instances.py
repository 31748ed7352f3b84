"""Services whose instance is moved, deleted or replaced end, or open it again; none goes on."""

from __future__ import annotations

import logging

import pyarrow as pa
import pytest
from fastapi.testclient import TestClient

import sleeper
from sleeper.errors import InstanceGone, InstanceReplaced
from sleeper.interfaces.rest.app import make_app
from sleeper.model.jobs.kinds import KIND_NAMES, QueueName
from sleeper.workers.instance_changes import CurrentInstance, PropertiesLook
from sleeper.workers.maintenance import OnlineTable, OnlineTables, run_maintenance
from sleeper.workers.open_worker import open_worker
from sleeper.workers.serve.fleet import WorkerFleet
from sleeper.workers.serve.metrics import Metrics, TableFigures
from sleeper.workers.stop_signal import StopSignal
from sleeper.workers.worker import WorkerSettings
from tests.unit.workers.clocks import SimulatedStop

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture
def root(tmp_path):
    """The folder of an instance with a table."""
    with sleeper.connect(tmp_path / "instance", create=True) as made:
        made.create_table("t", SCHEMA, row_keys=["id"]).ingest([{"id": 1}])
        made.jobs.send("ingest", "{}")
    return tmp_path / "instance"


@pytest.fixture
def current(root):
    """The instance as `sleeper serve` has it."""
    return CurrentInstance(sleeper.connect(root), lambda: sleeper.connect(root))


def replace(root):
    """Put an older copy in the place of the instance."""
    with sleeper.connect(root) as opened:
        opened.backup(root.with_name("backup"))
    root.rename(root.with_name("away"))
    root.with_name("backup").rename(root)


def online(current):
    """Return the tables that maintenance of `serve` has."""
    return OnlineTables(
        current,
        look=lambda: current.look(with_jobs=True),
        is_paused=lambda: False,
        note_lost=current.note_lost,
    )


class Rounds:
    """So many rounds, one right after the other, none of which looks for orphans."""

    def __init__(self, number, stop):
        self.left, self.stop = number, stop

    def rest(self):
        self.left -= 1
        if not self.left:
            self.stop.set()

    def sweep_is_due(self):
        return False


def rounds(tables, number):
    """Run so many rounds of maintenance, and return what failed."""
    stop = StopSignal()
    run = run_maintenance(
        lambda: (OnlineTable(table, stop) for table in tables()),
        stop=stop,
        rounds=Rounds(number, stop),
    )
    return [failure for step in run for failure in step.failures]


def health(current, fleet):
    """Return what `/healthz` of `serve` answers is wrong."""
    clock = current().clock
    metrics = Metrics(current, lambda: fleet, TableFigures(clock), clock, lost=lambda: current.lost)
    return metrics.problems()


def no_worker(kind):
    raise AssertionError(f"a {kind} worker was started")


def fleet_of(current):
    """Return a fleet that looks at a queue of the instance."""
    return WorkerFleet(
        start=no_worker,
        ready=lambda kind: current().jobs.stores.queue(QueueName.INGEST).ready(),
        workers_max={"ingest": 1},
        clock=current().clock,
    )


def test_an_instance_that_is_gone_is_told_at_each_round(root, current):
    """Given a folder that was moved away, then nothing is made, and health has one reason."""
    tables, fleet = online(current), fleet_of(current)
    assert rounds(tables, 1) == []
    root.rename(root.with_name("away"))

    failures = rounds(tables, 2)
    fleet.look()

    assert len(failures) == 2
    assert all("is no longer at" in each for each in failures)
    assert [each for each in health(current, fleet) if "is no longer at" in each]
    assert not root.exists()

    root.with_name("away").rename(root)
    assert rounds(tables, 1) == []
    assert current.lost is None


def test_an_instance_that_was_replaced_is_opened_again(root, current, caplog):
    """Given a restored backup, then a round fails, health says so, and the next opens it again."""
    tables, fleet = online(current), fleet_of(current)
    assert rounds(tables, 1) == []
    first = current()
    replace(root)

    (failure,) = rounds(tables, 1)

    assert "older copy was restored" in failure
    assert health(current, fleet) == [failure]
    assert rounds(tables, 1) == []
    assert health(current, fleet) == []
    assert current() is not first
    assert "the instance is opened again" in caplog.text


def test_another_instance_in_the_place_is_opened_as_a_restart_would(root, current, caplog):
    """Given an instance of another id, then the look says so, and opens what is there."""
    root.rename(root.with_name("away"))
    sleeper.create_instance(root, {"sleeper.id": "another"})

    assert current.look(with_jobs=True)

    assert current().instance_id == "another"
    assert "instance 'another' is at" in caplog.text


@pytest.mark.parametrize("kind", sorted(KIND_NAMES))
def test_workers_end_when_their_instance_is_gone(root, kind):
    """Given a worker of any kind, then it ends with the reason, and makes nothing anew."""
    worker = open_worker(
        sleeper.connect(root),
        kind,
        WorkerSettings(wait_s=0),
        SimulatedStop(wait=lambda seconds: pytest.fail("the worker waits")),
    )
    root.rename(root.with_name("away"))

    with pytest.raises(InstanceGone):
        worker.run()

    assert not root.exists()


def test_a_job_of_a_replaced_instance_goes_back_to_its_queue(tmp_path):
    """Given queues outside of the folder, then the worker ends, and its job is not a dead letter."""
    root, queues = tmp_path / "instance", tmp_path / "jobs.sqlite"
    sleeper.create_instance(root, {"sleeper.jobs.url": f"sqlite://{queues}"}).close()
    opened = sleeper.connect(root)
    opened.create_table("t", SCHEMA, row_keys=["id"])
    (tmp_path / "rows.json").write_text('{"id": 1}\n')
    copy = sleeper.connect(root)
    copy.backup(root.with_name("backup"))
    opened.jobs.submit_ingest("t", tmp_path / "rows.json", "job")
    opened.tables()
    root.rename(root.with_name("away"))
    root.with_name("backup").rename(root)

    def work(instance):
        open_worker(
            instance,
            "ingest",
            WorkerSettings(wait_s=0, until_empty=True),
            SimulatedStop(),
        ).run()

    with pytest.raises(InstanceReplaced):
        work(opened)

    depth = opened.jobs.queue_depths()["ingest"]
    assert (depth.ready, depth.dead) == (1, 0)
    sleeper.connect(root).set_properties({"sleeper.jobs.url": f"sqlite://{queues}"})
    work(sleeper.connect(root))
    assert sleeper.connect(root).table("t").count() == 1


def test_a_look_at_properties_raises_when_there_are_none(root):
    """Given a worker without messages, then its look once a minute ends it."""
    look = PropertiesLook(sleeper.connect(root), every_s=0.0)
    assert not look()
    root.rename(root.with_name("away"))

    for _ in range(2):
        with pytest.raises(InstanceGone):
            look()


def test_health_by_rest_says_what_happened_to_the_instance(root, caplog):
    """Given a folder that was moved away, then 503 with the reason; once it is back, 200."""
    caplog.set_level(logging.CRITICAL)
    with TestClient(
        make_app(sleeper.connect(root)),
        base_url="http://localhost:8750",
        raise_server_exceptions=False,
    ) as client:
        rows, health = "/sleeper/tables/t/rows", "/sleeper/health"
        headers = {"Content-Type": "application/jsonl"}
        assert client.get(health).status_code == 200
        root.rename(root.with_name("away"))

        gone = client.get(health)
        upload = client.post(rows, content='{"id": 2}\n', headers=headers)

        assert (gone.status_code, gone.json()["class"]) == (503, "InstanceGone")
        assert "is no longer at" in gone.json()["detail"]
        assert (upload.status_code, upload.json()["class"]) == (503, "InstanceGone")
        assert not root.exists()

        root.with_name("away").rename(root)
        assert client.get(health).status_code == 200
        assert client.post(rows, content='{"id": 2}\n', headers=headers).status_code == 200
        replace(root)
        again = client.get(health)
        assert (again.status_code, again.json()["class"]) == (503, "InstanceReplaced")
