"""Each kind of jobs has a module in `workers/kinds`, which reads the messages of its queues."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import pytest

import sleeper
import sleeper.workers.kinds
from sleeper.instance.instance import Instance
from sleeper.model.jobs.kinds import KINDS, kind_of
from sleeper.workers.open_worker import open_worker, reader_of
from sleeper.workers.stop_signal import StopSignal
from sleeper.workers.worker import WorkerSettings

READ = [each for each in KINDS if each.name not in ("compaction", "commit")]
"""The kinds whose messages the worker loop takes; the others have a loop of their own."""


@pytest.fixture
def instance(tmp_path) -> Instance:
    return sleeper.connect(tmp_path / "instance", create=True)


def test_each_module_of_a_kind_is_named_by_a_row():
    """Given the modules in the folder, then each is that of a row."""
    (folder,) = sleeper.workers.kinds.__path__
    found = {each.stem for each in Path(folder).glob("*.py") if each.stem != "__init__"}

    assert found == {each.module for each in KINDS}


@pytest.mark.parametrize("kind", READ, ids=lambda kind: kind.name)
def test_a_reader_reads_jobs_of_the_row(instance, kind):
    """Given each queue of a kind, then its reader's jobs are tracked as the row says."""
    for queue in kind.queue_names:
        assert reader_of(instance, kind, queue).kind is kind.tracked_as


@pytest.mark.parametrize(
    "kind", [each for each in KINDS if each.message is not None], ids=lambda kind: kind.name
)
def test_a_module_reads_the_messages_of_the_row(kind):
    """Given the format that a row names, then its module takes what reads it from there."""
    module = import_module(f"sleeper.workers.kinds.{kind.module}")
    readers = {
        name for name in vars(import_module(kind.message)) if name.startswith("read_")
    } & set(vars(module))

    assert any(vars(module)[name].__module__ == kind.message for name in readers)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_worker_of_each_kind_ends_when_there_is_nothing_to_do(instance, kind):
    """Given an instance without jobs, then each worker looks, and ends."""
    worker = open_worker(
        instance,
        kind.name,
        WorkerSettings(wait_s=0.0, until_empty=True),
        StopSignal(),
    )

    worker.run()

    assert f"sleeper.workers.kinds.{kind_of(kind.name).module}" in sys.modules
