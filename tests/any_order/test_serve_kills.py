"""`sleeper serve` is killed again and again while jobs run: nothing is lost, nothing is doubled."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.model.jobs.states import JobState
from tests.soak import FIRST_SEED, tries

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64())])
KILLS = tries(4, soak=500)
ROWS = 20_000
PATIENCE_S = 300.0
SETTINGS = {
    "sleeper.ingest.job.queue.wait.time": 1,
    "sleeper.ingest.queue.visibility.timeout.seconds": 3,
    "sleeper.ingest.keepalive.period.seconds": 1,
    "sleeper.jobs.receives.max": 1000,
    "sleeper.jobs.retry.first.seconds": 0,
}


def start(url: str) -> subprocess.Popen[bytes]:
    """Start a serve in a session of its own, so that its processes can be found."""
    return subprocess.Popen(
        [sys.executable, "-m", "sleeper", "serve", "--every", "1", "--job-workers", "ingest=2"],
        env={
            **os.environ,
            "SLEEPER_INSTANCE": url,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        },
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def left_of(session: int) -> list[str]:
    """Return the processes of a session that are no zombies."""
    lines = subprocess.run(
        ["ps", "-A", "-o", "sid=,stat=,pid="], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    found = (line.split() for line in lines)
    return [pid for sid, stat, pid in found if sid == str(session) and not stat.startswith("Z")]


def wait_until(happened) -> None:
    """Wait until something happened."""
    for _ in range(int(PATIENCE_S / 0.2)):
        if happened():
            return
        time.sleep(0.2)
    raise AssertionError("waited for too long")


@pytest.mark.soak
def test_kills_of_serve_lose_no_job_and_double_none(tmp_path: Path) -> None:
    """
    Given jobs under way, when serve is killed at any moment, or asked to end, then no process is
    left, and in the end each job is finished and each of its rows is there once.
    """
    draw = random.Random(FIRST_SEED)
    sleeper.create_instance(tmp_path / "instance", SETTINGS).close()
    with sleeper.connect(tmp_path / "instance") as instance:
        table = instance.create_table("numbers", SCHEMA, row_keys=["id"])
        jobs: list[str] = []

        def submit() -> None:
            number = len(jobs)
            ids = pa.array(range(number * ROWS, (number + 1) * ROWS))
            path = tmp_path / f"{number}.parquet"
            pq.write_table(pa.table({"id": ids, "n": ids}, schema=SCHEMA), path)
            jobs.append(instance.jobs.submit_ingest("numbers", path))

        for _ in range(KILLS):
            submit()
            served = start(instance.url)
            time.sleep(draw.uniform(0.5, 6))
            served.send_signal(draw.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]))
            served.wait(PATIENCE_S)
            wait_until(lambda session=served.pid: not left_of(session))

        submit()  # for which the last one is sure to have begun, and hears what it is sent
        last = start(instance.url)
        wait_until(lambda: all(instance.jobs.job(each).state is JobState.FINISHED for each in jobs))
        last.send_signal(signal.SIGTERM)
        assert last.wait(PATIENCE_S) == 0

        assert left_of(last.pid) == []
        found = table.query(columns=["id"]).to_arrow()["id"]
        assert found.equals(pa.chunked_array([pa.array(range(len(jobs) * ROWS))]))
