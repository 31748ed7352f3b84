"""A message asks for a bulk import; a worker has a Spark driver do it; the tracker tells how far.

The driver is a process of its own, with a Spark of its own: these tests do not use the session.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.errors import JobNotFound
from sleeper.model.jobs.kinds import QueueName
from sleeper.model.jobs.statuses import JobState
from tests.patience import PATIENCE_S, becomes_true
from tests.spark.class_archive import SHORT_LIVED
from tests.stories.test_ingest_jobs import work
from tests.stories.test_serving import processes_of
from tests.unit.interfaces.command_line import sleeper as command

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])
SPARK = "sleeper.bulk.import.spark."
ROWS = 20_000


@pytest.fixture
def instance(tmp_path):
    """An instance whose bulk imports run on Spark, with one worker: two cost twice the imports."""
    sleeper.create_instance(
        tmp_path / "instance",
        {
            "sleeper.bulk.import.local.spark.master": "local[1]",
            f"{SPARK}driver.memory": "1g",
            f"{SPARK}driver.extra.java.options": SHORT_LIVED,
            f"{SPARK}sql.shuffle.partitions": "2",
            "sleeper.jobs.retry.first.seconds": 0,
        },
    ).close()
    with sleeper.connect(tmp_path / "instance") as opened:
        opened.create_table("numbers", SCHEMA, row_keys=["id"], split_points=["06", "13"])
        yield opened


@pytest.fixture
def worker(instance):
    """A worker of bulk imports, a process of its own that ends when its queue is empty."""
    started = []

    def start() -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "sleeper", "worker", "bulk-import", "--until-empty"],
            env={
                **os.environ,
                "SLEEPER_INSTANCE": instance.url,
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            },
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stderr.close()  # not read to its end: a JVM that outlives its driver holds it open


def submitted(tmp_path: Path, instance, **more: object) -> str:
    """Write Parquet, send a message for it by the command line, and return the job's id."""
    folder = tmp_path / "june"
    folder.mkdir()
    for start in (0, ROWS // 2):
        numbers = range(start, start + ROWS // 2)
        ids = [f"{number:06}"[::-1] for number in numbers]
        table = pa.table({"id": ids, "n": [*numbers]}, schema=SCHEMA)
        pq.write_table(table, folder / f"{start}.parquet")
    message = {"id": "june", "tableName": "numbers", "files": [str(folder)], **more}
    path = tmp_path / "message.json"
    path.write_text(json.dumps(message))
    sent = command("jobs", "send", "bulk-import", path, "--instance", instance.url)
    assert sent.exit_code == 0, sent.output
    return "june"


def state_of(instance, job_id: str) -> JobState | None:
    """Return a job's state; None while nothing is known of it."""
    try:
        return instance.jobs.job(job_id).state
    except JobNotFound:
        return None


def rows_are_there_once(instance) -> bool:
    """Return whether the table has each row of the input, and no other."""
    numbers = instance.table("numbers").query().to_arrow().column("n").to_pylist()
    return sorted(numbers) == [*range(ROWS)]


def test_a_bulk_import_is_sent_followed_and_found(instance, worker, tmp_path):
    """Given a message, then the tracker tells each state, and rows are found by key (BLK-3)."""
    logs = tmp_path / "event-logs"
    logs.mkdir()
    job_id = submitted(
        tmp_path,
        instance,
        className="sleeper.bulkimport.runner.rdd.BulkImportJobRDDDriver",
        sparkConf={
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": str(logs),
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
            "spark.sql.shuffle.partitions": "3",
        },
    )
    process = worker()
    seen: list[JobState | None] = []
    begun = time.monotonic()
    while seen[-1:] != [JobState.FINISHED] and time.monotonic() - begun < PATIENCE_S:
        state = state_of(instance, job_id)
        if seen[-1:] != [state]:
            seen.append(state)
        time.sleep(0.2)

    status = instance.jobs.job(job_id)
    # What a run that failed says is shown: `run_again` looks for a machine that was too busy.
    assert [each.state for each in status.runs] == [JobState.FINISHED], status.runs
    assert [state for state in seen if state] == [
        JobState.ACCEPTED,
        JobState.IN_PROGRESS,
        JobState.FINISHED,
    ]
    (run,) = status.runs
    assert (run.rows_read, run.rows_written) == (ROWS, ROWS)
    assert run.task_id == run.run_id  # the driver, no worker
    assert status.platform == "spark driver"
    assert status.transaction == instance.table("numbers").refresh()
    table = instance.table("numbers")
    assert table.query(key="430210").to_pylist() == [{"id": "430210", "n": 12034}]
    assert rows_are_there_once(instance)
    process.communicate(timeout=PATIENCE_S)
    (log,) = logs.iterdir()
    properties = next(
        entry["Spark Properties"]
        for entry in map(json.loads, log.read_text().splitlines())
        if entry["Event"] == "SparkListenerEnvironmentUpdate"
    )
    assert properties["spark.sql.shuffle.partitions"] == "3"  # the job's wins
    assert properties["spark.driver.memory"] == "1g"
    assert properties["spark.app.name"].endswith("-numbers-june")
    assert not [*(tmp_path / "instance" / "bulk_import").glob("*")]


def test_a_driver_that_is_killed_is_noticed_and_its_job_runs_again(instance, worker, tmp_path):
    """Given a driver killed at work, then another one does the job, and rows are there once."""
    job_id = submitted(tmp_path, instance)
    process = worker()
    assert becomes_true(lambda: state_of(instance, job_id) is JobState.IN_PROGRESS)

    os.kill(processes_of(process.pid)[0], signal.SIGKILL)

    process.communicate(timeout=PATIENCE_S)
    status = instance.jobs.job(job_id)
    states = [run.state for run in status.runs]
    assert states == [JobState.FINISHED, JobState.FAILED], status.runs
    assert "was killed by signal 9" in status.runs[1].reasons[0]
    assert rows_are_there_once(instance)


def test_a_driver_has_its_rows_committed_by_the_committer(instance, worker, tmp_path):
    """Given a table that has a committer, then the driver sends its commit there (ING-13)."""
    table = instance.table("numbers")
    table.set_properties({"sleeper.table.statestore.commit.async.enabled": True})
    job_id = submitted(tmp_path, instance)

    worker().communicate(timeout=PATIENCE_S)
    assert instance.jobs.job(job_id).state is JobState.UNCOMMITTED
    assert table.query().to_arrow().num_rows == 0
    assert work(instance, "commit") == 1

    assert instance.jobs.job(job_id).state is JobState.FINISHED
    assert rows_are_there_once(instance)


def test_a_driver_replaces_rows(instance, worker, tmp_path):
    """Given rows and a committer, then the driver of an upsert commits it by itself (ING-18)."""
    table = instance.table("numbers")
    table.ingest([{"id": "000000", "n": -1}, {"id": "991000", "n": -2}, {"id": "other", "n": -3}])
    table.set_properties({"sleeper.table.statestore.commit.async.enabled": True})
    job_id = submitted(tmp_path, instance, upsert=True)

    worker().communicate(timeout=PATIENCE_S)

    assert instance.jobs.job(job_id).state is JobState.FINISHED
    numbers = table.query().to_arrow().column("n").to_pylist()
    assert sorted(numbers) == [-3, *range(ROWS)]


def test_a_driver_ends_with_its_worker(instance, worker, tmp_path):
    """Given a driver at work, when its worker gets SIGTERM, then the job goes back to its queue."""
    job_id = submitted(tmp_path, instance)
    process = worker()
    assert becomes_true(lambda: state_of(instance, job_id) is JobState.IN_PROGRESS)
    started = processes_of(process.pid)

    process.terminate()

    process.communicate(timeout=PATIENCE_S)
    assert becomes_true(lambda: not any(Path(f"/proc/{pid}").exists() for pid in started))
    depth = instance.jobs.queue_depths()[QueueName.BULK_IMPORT]
    assert (depth.ready, depth.hidden) == (1, 0)
    assert instance.table("numbers").query().to_arrow().num_rows == 0


def test_an_import_that_fails_says_why(instance, worker, tmp_path):
    """Given a file that is no Parquet, then the job fails with the driver's reasons, for good."""
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"no rows at all")
    job_id = instance.jobs.submit_bulk_import("numbers", broken, "june")

    worker().communicate(timeout=PATIENCE_S)

    status = instance.jobs.job(job_id)
    assert status.state is JobState.FAILED
    assert status.is_over
    assert status.reasons[0].startswith("the Spark driver, process")
    assert str(broken) in status.reasons[1]
    (letter,) = instance.jobs.dead_letters("bulk-import")
    assert str(broken) in letter.reason
