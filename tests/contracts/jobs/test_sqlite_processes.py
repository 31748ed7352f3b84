"""Real processes use one SQLite file of jobs at the same time, and are killed while they do."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter

import pytest

from sleeper.model.jobs.events import JobFilter
from sleeper.model.jobs.kinds import JobKind, QueueName
from tests.contracts.jobs import processes
from tests.soak import tries

ROUNDS = tries(5, soak=125)
"""Each of four kills."""


def run(*arguments):
    """Run the program, and return what it printed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, processes.__file__, *map(str, arguments)],
        check=False,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def drained(queue):
    """Receive all that is left; return the bodies."""
    bodies = []
    while messages := queue.receive(10):
        bodies += [each.body for each in messages]
        queue.delete([each.receipt for each in messages])
    return bodies


def test_four_producers_and_four_consumers_lose_and_double_nothing(tmp_path):
    """Every message that was sent is received once, by one of them."""
    ends = run("race", tmp_path, 250)
    notes = processes.read_notes(tmp_path)
    stores = processes.open_stores(tmp_path)
    received = [name for what, name in notes if what == "! receive"]
    received += drained(stores.queue(QueueName.INGEST))
    depth = stores.queue(QueueName.INGEST).depth()
    stores.close()

    assert ends == ["{0}"]
    assert max(Counter(received).values()) == 1
    assert sorted(received) == sorted(f"producer-{n}:{m}" for n in range(4) for m in range(250))
    assert (depth.hidden, depth.dead) == (0, 0)


@pytest.mark.soak
def test_killed_processes_lose_nothing_that_was_acknowledged(tmp_path):
    """
    Messages that were sent are there until somebody began to delete them, and gone once that was
    acknowledged; events, files and unsent jobs are there; the file is whole after every round.
    """
    checks = run("kill", tmp_path, ROUNDS, random.randrange(10**6))
    notes = processes.read_notes(tmp_path)
    said = {}
    for what, name in notes:
        said.setdefault(what, set()).add(name)
    stores = processes.open_stores(tmp_path)
    queue = stores.queue(QueueName.INGEST)
    queue.redrive()
    with_hidden = queue.depth()
    rows = present(tmp_path / "jobs.sqlite")
    files = list(stores.batcher.newest())
    unsent = {job.job_id for job in stores.batcher.unsent()}
    recorded = {events[0].job_id for events in stores.tracker.jobs(JobFilter(kind=JobKind.INGEST))}
    stores.close()

    assert checks == ["[('ok',)]"] * ROUNDS
    assert len(said["! send"]) > ROUNDS
    assert max(Counter(rows).values()) == 1
    assert with_hidden.ready + with_hidden.hidden == len(rows)
    assert said["! send"] - said["? delete"] <= set(rows)
    assert said["! delete"] & set(rows) == set()
    assert said["! record"] <= recorded
    assert said["! save"] <= {each.path for each in files}
    jobs = {each.job_id for each in files} - {None}
    assert said["! assign"] <= jobs
    assert jobs - said["? note-sent"] <= unsent <= jobs


def present(path):
    """Return the bodies of all messages, hidden ones too."""
    connection = processes.sqlite3.connect(path)
    bodies = [body for (body,) in connection.execute("SELECT body FROM message")]
    connection.close()
    return bodies
