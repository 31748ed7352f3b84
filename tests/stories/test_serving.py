"""`sleeper serve` as one tree of processes: jobs are run while there are some, and it ends whole."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.instance.instance import Instance
from sleeper.model.jobs.kinds import QueueName
from sleeper.model.jobs.statuses import JobState
from sleeper.workers.serve.job_services import Timers, timers_of
from tests.patience import PATIENCE_S, becomes_true
from tests.unit.interfaces.command_line import sleeper as command

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])
MANY = 1_500_000
"""So many rows that their ingest takes a second or more."""


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    """An instance in a folder, with a table. Its idle workers end soon."""
    sleeper.create_instance(
        tmp_path / "instance",
        {
            "sleeper.ingest.job.queue.wait.time": 2,
            "sleeper.ingest.queue.visibility.timeout.seconds": 3,
            "sleeper.ingest.keepalive.period.seconds": 1,
        },
    ).close()
    with sleeper.connect(tmp_path / "instance") as opened:
        opened.create_table("numbers", SCHEMA, row_keys=["id"])
        yield opened


class Served:
    """A `sleeper serve` of its own process, and the lines that it logs."""

    def __init__(self, url: str, *options: str) -> None:
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sleeper", "--log-format", "json", "serve", *options],
            env={
                **os.environ,
                "SLEEPER_INSTANCE": url,
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            },
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self, *numbers: int) -> int:
        """Send signals, the last of several until it ends; return the exit code when all ended."""
        started = processes_of(self.process.pid)
        for number in numbers:
            self.process.send_signal(number)
            time.sleep(0.2)  # two at once would be one
        while len(numbers) > 1 and self.process.poll() is None:  # on a busy machine they were
            self.process.send_signal(numbers[-1])
            time.sleep(0.5)
        _, errors = self.process.communicate(timeout=PATIENCE_S)
        self.lines = [
            json.loads(line)["message"]
            for line in errors.splitlines()
            if line.startswith("{")  # what Ctrl-C says is no log line
        ]
        assert becomes_true(lambda: not [pid for pid in started if is_running(pid)])
        return self.process.returncode


@pytest.fixture
def serve(instance: Instance) -> Iterator[Served]:
    """A `sleeper serve` of the instance."""
    served = Served(instance.url)
    yield served
    if served.process.poll() is None:
        served.end(signal.SIGKILL)


def processes_of(parent: int) -> list[int]:
    """Return the processes that a process has started, and theirs."""
    lines = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    parents = {int(pid): int(ppid) for pid, ppid in map(str.split, lines)}
    found = [pid for pid, ppid in parents.items() if ppid == parent]
    return [*found, *(pid for child in found for pid in processes_of(child))]


def is_running(pid: int) -> bool:
    """Return whether a process is there and no zombie."""
    state = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout.strip()
    return bool(state) and not state.startswith("Z")


def written(path: Path, numbers: range) -> Path:
    """Write a Parquet file with a row for each number."""
    n = pa.array(np.arange(numbers.start, numbers.stop))
    pq.write_table(pa.table({"id": n.cast(pa.string()), "n": n}, schema=SCHEMA), path)
    return path


def rows(instance: Instance) -> int:
    """Return how many rows the table has."""
    return sum(each.row_count for each in instance.table("numbers").references())


def ends(instance: Instance, job_id: str) -> None:
    """Wait until a job is finished."""
    assert becomes_true(lambda: instance.jobs.job(job_id).state is JobState.FINISHED)


def test_jobs_are_run_by_processes_that_end_when_there_are_none(instance, serve, tmp_path):
    """Given a serve, when a job is submitted, then a process runs it, and ends when it is idle."""
    job_id = instance.jobs.submit_ingest("numbers", written(tmp_path / "a.parquet", range(2)))

    ends(instance, job_id)
    workers = processes_of(serve.process.pid)  # a second one where the first was slow to start
    assert workers
    assert becomes_true(lambda: not [worker for worker in workers if is_running(worker)])
    again = instance.jobs.submit_ingest("numbers", written(tmp_path / "b.parquet", range(2, 3)))
    ends(instance, again)

    assert rows(instance) == 3
    assert serve.end(signal.SIGTERM) == 0
    assert serve.lines[0].startswith(f"serving {instance.url}, with a round")
    done = [line for line in serve.lines if line.startswith("ingest job ")]
    assert [line.split()[2] for line in done] == [job_id, again]
    assert serve.lines[-1] == "asked to end: ending all processes"


def test_unfinished_jobs_go_back_when_it_is_stopped(instance, serve, tmp_path):
    """Given a job at work, when serve gets SIGTERM, then its message can be taken at once."""
    big = written(tmp_path / "big.parquet", range(MANY))
    job_id = instance.jobs.submit_ingest("numbers", big)
    assert becomes_true(lambda: instance.jobs.job(job_id).state is JobState.IN_PROGRESS)

    assert serve.end(signal.SIGTERM) == 0

    depth = instance.jobs.queue_depths()[QueueName.INGEST]
    assert (depth.ready, depth.hidden) == (1, 0)
    assert rows(instance) == 0


@pytest.mark.parametrize("numbers", [[signal.SIGKILL], [signal.SIGINT, signal.SIGINT]])
def test_no_process_outlives_it_and_the_job_comes_again(instance, serve, tmp_path, numbers):
    """Given a job at work, when serve is killed, then all ends, and another serve does the job."""
    big = written(tmp_path / "big.parquet", range(MANY))
    job_id = instance.jobs.submit_ingest("numbers", big)
    assert becomes_true(lambda: instance.jobs.job(job_id).state is JobState.IN_PROGRESS)

    assert serve.end(*numbers) != 0

    another = Served(instance.url)
    ends(instance, job_id)  # maybe by a worker that was quicker than its end
    one = written(tmp_path / "b.parquet", range(MANY, MANY + 1))
    ends(instance, instance.jobs.submit_ingest("numbers", one))
    assert another.end(signal.SIGTERM) == 0
    assert rows(instance) == MANY + 1


def test_a_paused_instance_begins_nothing_until_it_is_resumed(instance, serve, tmp_path):
    """Jobs wait and tables are left alone while queries go on; it survives a restart."""
    assert command("pause", "--instance", instance.url).exit_code == 0
    time.sleep(6)  # serve looks every five seconds
    job_id = instance.jobs.submit_ingest("numbers", written(tmp_path / "a.parquet", range(2)))
    time.sleep(3)

    assert processes_of(serve.process.pid) == []
    assert instance.jobs.job(job_id).state is JobState.ACCEPTED
    assert "services are paused since" in command("report", "--instance", instance.url).output
    worked = command("worker", "ingest", "--until-empty", "--instance", instance.url)
    assert "paused since" in worked.output
    assert instance.jobs.job(job_id).state is JobState.ACCEPTED

    assert command("resume", "--instance", instance.url).exit_code == 0
    ends(instance, job_id)
    assert serve.end(signal.SIGTERM) == 0


def test_reports_show_workers_and_dead_letters(instance):
    """What ran, what is delivered no more, and everything at once."""
    queue = instance.jobs.stores.queue(QueueName.INGEST)
    instance.jobs.send("ingest", "{}")
    (message,) = queue.receive()
    queue.bury(message.receipt, "nobody knows what it wants")
    assert command("worker", "ingest", "--until-empty", "--instance", instance.url).exit_code == 0

    tasks, letters, everything = (
        json.loads(command("report", name, "--json", "--instance", instance.url).stdout)
        for name in ("tasks", "dead-letters", "full")
    )

    assert [(task["kind"], task["jobs"]) for task in tasks] == [("ingest", 0)]
    assert letters["ingest"][0]["reason"] == "nobody knows what it wants"
    assert everything["tasks"] == tasks
    assert everything["dead_letters"] == letters
    assert everything["tables"]["numbers"]["files"]["rows"] == 0
    text = command("report", "full", "--instance", instance.url).output
    assert "nobody knows what it wants" in text
    none = command("report", "tasks", "--unfinished", "--json", "--instance", instance.url)
    assert json.loads(none.stdout) == []


def test_submitted_files_become_jobs_without_being_asked_for(instance, serve, tmp_path):
    """Given files that fill a batch, when they are submitted, then serve makes a job and runs it."""
    instance.table("numbers").set_properties(
        {
            "sleeper.table.ingest.batcher.job.min.files": 1,
            "sleeper.table.ingest.batcher.job.min.size": 1,
        }
    )
    timers = Timers(timers_of(instance, lambda: False), instance.clock)
    instance.jobs.submit_files("numbers", written(tmp_path / "a.parquet", range(3)))
    work = command("worker", "batcher", "--until-empty", "--instance", instance.url)
    assert work.exit_code == 0, work.output

    timers.run_due()

    assert becomes_true(lambda: rows(instance) == 3)
    assert serve.end(signal.SIGTERM) == 0


def test_changed_properties_are_used_by_a_serve_that_runs(instance, tmp_path):
    """Given a serve at work, when jobs get another place, then it runs those that are sent there."""
    served = Served(instance.url, "--every", "1")
    try:
        first = instance.jobs.submit_ingest("numbers", written(tmp_path / "a.parquet", range(2)))
        ends(instance, first)
        jobs = f"sqlite://{tmp_path}/jobs.sqlite"
        done = command("instance", "set", f"sleeper.jobs.url={jobs}", "--instance", instance.url)
        assert done.exit_code == 0, done.output

        with sleeper.connect(instance.url) as changed:
            file = written(tmp_path / "b.parquet", range(2, 5))
            ends(changed, changed.jobs.submit_ingest("numbers", file))
            assert rows(changed) == 5
        assert served.end(signal.SIGTERM) == 0
    finally:
        if served.process.poll() is None:
            served.end(signal.SIGKILL)
