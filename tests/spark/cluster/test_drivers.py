"""Drivers of bulk imports are killed, and started twice: each job is committed once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict

import pytest

from tests.patience import becomes_true
from tests.spark.cluster.conftest import ROOT, WORKERS_SEE
from tests.spark.cluster.fault_tables import Scene
from tests.spark.cluster.faulty_files import Fault

LOG = "statestore/transactions/"


@pytest.fixture
def scene(tmp_path):
    return Scene(tmp_path)


class Driver:
    """A process that drives imports; Spark, and Spark's workers, are processes of its session."""

    def __init__(self, process: subprocess.Popen) -> None:
        self.process = process

    def start(self, scene: Scene, job: str, *plan: Fault, marks: str = "of-driver") -> None:
        """Have it import the scene's files."""
        (scene.folder / marks).mkdir(exist_ok=True)
        asked = {
            "folder": str(scene.folder / "instance"),
            "table": scene.table.name,
            "inputs": str(scene.inputs),
            "job": job,
            "marks": str(scene.folder / marks),
            "plan": [asdict(fault) for fault in plan],
        }
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict:
        """Wait for the result of an import."""
        return json.loads(self.process.stdout.readline())

    def wait_for_death(self) -> None:
        """Wait until it was killed, and all that it had started has gone after it."""
        assert self.process.wait() == -signal.SIGKILL
        assert becomes_true(lambda: not self.left()), "the end of Spark, after its driver's"

    def left(self) -> list[int]:
        """Processes of its session, but for itself and those that are dead already."""
        asked = ["ps", "-A", "-o", "pid=,sess=,stat="]
        shown = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
        found = [line.split() for line in shown.splitlines()]
        mine = str(self.process.pid)
        return [
            int(pid)
            for pid, session, status in found
            if session == mine and pid != mine and not status.startswith("Z")
        ]


@contextmanager
def a_driver(folder, *cluster):
    """Start a driver, of a cluster by its URL or of its own; end it and all that it started."""
    (folder / "spark").mkdir()
    with (folder / "driver.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.cluster.driver", str(folder / "spark"), *cluster],
            cwd=ROOT,
            env={**os.environ, **WORKERS_SEE, "SPARK_LOCAL_IP": "127.0.0.1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )
    driver = Driver(process)
    try:
        assert process.stdout.readline() == "ready\n", (folder / "driver.log").read_text()
        yield driver
    finally:
        for pid in (process.pid, *driver.left()):
            if process.returncode is None or pid != process.pid:
                os.kill(pid, signal.SIGKILL)
        process.wait()
        process.stdin.close()
        process.stdout.close()


DEATHS = {
    "while tasks write": (Fault("close", "kill driver", ".parquet", after=True), False),
    "before the commit": (Fault("create", "kill process", LOG, tasks_only=False), False),
    "when the log has the entry and no answer came": (
        Fault("create", "kill process", LOG, after=True, tasks_only=False),
        True,
    ),
}


@pytest.mark.parametrize(("fault", "committed"), DEATHS.values(), ids=DEATHS.keys())
def test_a_job_whose_driver_was_killed_is_run_again(cluster, scene, fault, committed):
    """All rows or none are visible, and the same job id again adds what is missing, once."""
    with a_driver(scene.folder) as driver:
        driver.start(scene, "job", fault)
        driver.wait_for_death()
    if committed:
        scene.check_all_there()
    else:
        scene.check_nothing_there()

    again = scene.table.bulk_import(scene.inputs, "job", engine="spark", spark=cluster)

    assert again.already_committed == committed
    scene.check_all_there()
    assert bool(scene.orphans()) == (not committed)  # of the dead driver's workers


def test_a_job_that_two_drivers_run_at_once_is_committed_once(cluster, scene):
    """Both have written their files when they turn to the log; the slower one deletes its own."""
    meeting = Fault("turn", "meet", LOG, times=2, tasks_only=False)
    table, faults = scene.with_faults(meeting, marks="meeting")
    with a_driver(scene.folder) as driver, ThreadPoolExecutor(1) as other:
        driver.start(scene, "job", meeting, marks="meeting")
        answer = other.submit(driver.answer)

        ours = table.bulk_import(scene.inputs, "job", engine="spark", spark=cluster)

        theirs = answer.result()
        assert faults.happened() == 2
        assert {ours.already_committed, theirs["already_committed"]} == {False, True}
        assert ours.transaction == theirs["transaction"]
        scene.check_all_there()
        assert not scene.orphans()

        os.kill(driver.process.pid, signal.SIGKILL)  # after its commit
        driver.wait_for_death()
    again = scene.table.bulk_import(scene.inputs, "job", engine="spark", spark=cluster)
    assert again.already_committed
    assert again.transaction == ours.transaction
    scene.check_all_there()
