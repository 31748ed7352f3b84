"""Compactions are shared by worker processes: one dies, one is stopped, others go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import sleeper
from sleeper.instance.instance import Instance
from sleeper.model.jobs.statuses import JobState
from sleeper.storage.local.folder import FolderObjects
from tests.patience import PATIENCE_S, becomes_true
from tests.unit.interfaces.command_line import sleeper as command

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64())])
LEAVES = 24
FILES = 4
ROWS = 40_000


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    """A folder with a table of many leaves, each of which has some files to compact."""
    with sleeper.connect(tmp_path / "instance", create=True) as opened:
        points = [ROWS // LEAVES * leaf for leaf in range(1, LEAVES)]
        table = opened.create_table("numbers", SCHEMA, row_keys=["id"], split_points=points)
        ids = pa.array(np.arange(ROWS))
        for _ in range(FILES):
            table.ingest(pa.table({"id": ids, "n": ids}, schema=SCHEMA))
        yield opened


def start(instance: Instance, *command: str) -> subprocess.Popen[str]:
    """Start a process of the instance, such as a worker."""
    return subprocess.Popen(
        [sys.executable, "-m", "sleeper", *command],
        env={
            **os.environ,
            "SLEEPER_INSTANCE": instance.url,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        },
        stderr=subprocess.PIPE,
        text=True,
    )


def worker(instance: Instance, *options: str) -> subprocess.Popen[str]:
    """Start a compaction worker."""
    return start(instance, "worker", "compaction", *options)


def jobs_by_worker(instance: Instance) -> dict[str | None, int]:
    """Return how many jobs each worker finished."""
    done: dict[str | None, int] = {}
    for job in instance.jobs.list(kind="compaction", state=JobState.FINISHED):
        task_id = job.runs[0].task_id
        done[task_id] = done.get(task_id, 0) + 1
    return done


def claimed_by(instance: Instance, process: subprocess.Popen[str]) -> bool:
    """Return whether a process has claims."""
    claims = instance.table("numbers").claims()
    return any(each.owner is not None and each.owner.pid == process.pid for each in claims)


def files(instance: Instance) -> int:
    """Return how many files the leaves have, each for itself: they may share some."""
    return len(instance.table("numbers").references())


def has_every_row(instance: Instance) -> bool:
    """Return whether each row is there as often as it was ingested."""
    found = instance.table("numbers").query(columns=["id"]).to_arrow()["id"].to_numpy()
    return bool(np.array_equal(found, np.repeat(np.arange(ROWS), FILES)))


def test_two_workers_share_the_jobs_of_one_table(instance):
    """Given two processes on one folder, then both do some, no job is done twice, and both end."""
    most = str(LEAVES * 2 // 3)  # so that neither does all before the other has begun
    workers = [worker(instance, "--until-empty", "--jobs", most) for _ in range(2)]

    for each in workers:
        _, told = each.communicate(timeout=PATIENCE_S)
        assert each.returncode == 0, told

    done = jobs_by_worker(instance)
    assert sum(done.values()) == LEAVES
    assert len(done) == 2
    assert files(instance) == LEAVES
    assert has_every_row(instance)
    tasks = [*instance.jobs.tasks("compaction")]
    assert sorted(task.pid for task in tasks) == sorted(each.pid for each in workers)
    assert sum(task.jobs or 0 for task in tasks) == LEAVES
    assert sum(task.rows_read or 0 for task in tasks) == FILES * ROWS


def test_the_claims_of_a_killed_worker_are_taken_over_after_their_lease(instance, monkeypatch):
    """Others do what it had not claimed at once, and the rest when the lease has ended."""
    killed = worker(instance)
    assert becomes_true(lambda: claimed_by(instance, killed))
    killed.kill()
    killed.communicate()
    lost = {each.job_id for each in instance.table("numbers").claims()}

    assert command("worker", "compaction", "--until-empty", "--instance", instance.url)
    assert files(instance) == LEAVES + len(lost) * (FILES - 1)
    later = datetime.now(UTC) + timedelta(minutes=11)
    monkeypatch.setattr(FolderObjects, "storage_time", lambda _: later)
    taken = command("worker", "compaction", "--until-empty", "--instance", instance.url)

    assert taken.exit_code == 0, taken.output
    assert files(instance) == LEAVES
    assert has_every_row(instance)
    for job_id in lost:
        assert instance.jobs.job(job_id, kind="compaction").state is JobState.FAILED


def test_a_worker_that_gets_sigterm_gives_back_what_it_claimed(instance):
    """Within moments it ends well, and its files are free; what it was doing is no part of it."""
    process = worker(instance)
    assert becomes_true(lambda: claimed_by(instance, process))

    process.send_signal(signal.SIGTERM)
    _, told = process.communicate(timeout=PATIENCE_S)

    assert process.returncode == 0, told
    assert instance.table("numbers").claims() == ()
    assert all(job.is_over for job in instance.jobs.list(kind="compaction"))
    (task,) = instance.jobs.tasks("compaction")
    assert task.is_finished


def test_serve_starts_workers_for_compactions_and_ends_them(instance):
    """Given files to compact, then processes of serve do it; they end, and serve goes on."""
    served = start(instance, "serve", "--every", "1", "--workers", "2")
    try:
        assert becomes_true(lambda: files(instance) == LEAVES)
        assert becomes_true(lambda: len([*instance.jobs.tasks("compaction")]) >= 2)
        assert becomes_true(
            lambda: all(task.is_finished for task in instance.jobs.tasks("compaction"))
        )
    finally:
        served.send_signal(signal.SIGTERM)
        _, told = served.communicate(timeout=PATIENCE_S)

    assert served.returncode == 0, told
    assert served.pid not in {task.pid for task in instance.jobs.tasks("compaction")}
    assert has_every_row(instance)


def test_serve_compacts_by_itself_where_it_is_told_to(instance):
    """Given --job-workers compaction=0, then its maintenance compacts, and no worker does."""
    served = start(instance, "serve", "--every", "1", "--job-workers", "compaction=0")
    try:
        assert becomes_true(lambda: files(instance) == LEAVES)
    finally:
        served.send_signal(signal.SIGTERM)
        _, told = served.communicate(timeout=PATIENCE_S)

    assert served.returncode == 0, told
    assert [*instance.jobs.tasks("compaction")] == []
    assert [*instance.jobs.list(kind="compaction")] == []


def test_a_worker_ends_with_its_parent(instance):
    """Given a serve that is killed, then its compaction workers end too."""
    served = start(instance, "serve", "--every", "1")
    assert becomes_true(lambda: [*instance.jobs.tasks("compaction")])
    (task, *_) = instance.jobs.tasks("compaction")

    served.kill()
    served.communicate()

    def has_ended() -> bool:
        state = subprocess.run(
            ["ps", "-o", "stat=", "-p", str(task.pid)], capture_output=True, text=True, check=False
        ).stdout.strip()
        return not state or state.startswith("Z")

    assert becomes_true(has_ended)
    assert has_every_row(instance)
