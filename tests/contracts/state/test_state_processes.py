"""Real processes race for the state of one table, and are killed in the middle of it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from sleeper.storage.local.folder import FolderObjects
from tests.contracts.s3_server import s3_credentials
from tests.contracts.servers.dynamo import dynamo_endpoint, dynamo_environment, on_one_server
from tests.contracts.state import commit_until_killed
from tests.contracts.state.places import RealClock, StatePlace
from tests.contracts.state_store_contract import BEGIN
from tests.soak import FIRST_SEED, tries

__all__ = ["dynamo_endpoint", "dynamo_environment", "s3_credentials"]

CLASSES = ("DynamoDBTransactionLogStateStore",)
WRITERS = 8
COMMITS = tries(3, soak=20)
ROUNDS = tries(2, soak=25)
KILLED_WRITERS = 4


@pytest.fixture(params=CLASSES)
def place(request, dynamo_environment, tmp_path):
    """The state of a table with one partition."""
    place = StatePlace(request.param, FolderObjects(tmp_path), RealClock())
    place.open(is_new=True).commit(BEGIN)
    return place


class Writers:
    """A program that forks writers, which are let go at the same moment."""

    def __init__(self, place, folder, writers, commits):
        ids = (place.instance_id, place.table_id)
        arguments = [place.class_name, str(folder), *ids, str(writers), str(commits)]
        self.program = subprocess.Popen(
            [sys.executable, commit_until_killed.__file__, *arguments],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.program.stdout.readline() == "ready\n"
        self.program.stdin.write("go\n")
        self.program.stdin.flush()
        self.told = []

    def wait_for(self, commits):
        self.told += [self.program.stdout.readline() for _ in range(commits)]

    def kill(self):
        """Kill all without warning, wherever they are."""
        os.killpg(self.program.pid, signal.SIGKILL)

    def acknowledged(self):
        """Wait for all to end; return the files of which they were told, with their numbers."""
        self.told += self.program.communicate(timeout=120)[0].splitlines(keepends=True)
        whole = [line.split() for line in self.told if line.endswith("\n")]
        return {name: int(number) for name, number in whole}


def check(place, acknowledged):
    """All that was acknowledged is there, once, with its number; no number is missing."""
    store = place.open()
    state = store.state()
    names = [each.filename for each in state.references()]
    assert len(names) == len(set(names)) == state.number - 1
    assert set(acknowledged) <= set(names)
    assert len(set(acknowledged.values())) == len(acknowledged)
    if store.log is not None:
        assert [number for number, _ in store.log.read_after(0)] == list(range(1, state.number + 1))
        for name, number in acknowledged.items():
            assert name.encode() in store.log.read(number)
    return len(names)


@on_one_server
def test_of_processes_that_race_each_commits_all(place, tmp_path):
    """Eight of them, without a lock: none is starved for good, and no number has two winners."""
    writers = Writers(place, tmp_path, WRITERS, COMMITS)

    acknowledged = writers.acknowledged()

    assert writers.program.returncode == 0
    assert len(acknowledged) == WRITERS * COMMITS
    assert check(place, acknowledged) == WRITERS * COMMITS


@on_one_server
def test_kills_lose_nothing_and_double_nothing(place, tmp_path):
    """After each massacre, what was acknowledged is there, and others go on where it ended."""
    draw = random.Random(FIRST_SEED)
    acknowledged, present = {}, 0
    for _ in range(ROUNDS):
        writers = Writers(place, tmp_path, KILLED_WRITERS, 100_000)
        writers.wait_for(draw.randrange(1, 12))
        time.sleep(draw.uniform(0, 0.05))
        writers.kill()
        acknowledged |= writers.acknowledged()
        present = check(place, acknowledged)

    assert len(acknowledged) >= ROUNDS
    assert present <= len(acknowledged) + ROUNDS * KILLED_WRITERS
