"""What `sleeper serve` runs: how many workers, how they are started, and one round."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from contextlib import closing, suppress
from urllib.request import urlopen

import pyarrow as pa
import pytest

import sleeper
from sleeper.model.files import ClaimOwner
from sleeper.model.jobs.kinds import KIND_NAMES
from sleeper.state.transactions.files import Claim, ClaimFiles
from sleeper.workers.serve.serve import ServeSettings, WorkerCommand, run_serve, workers_max_of
from sleeper.workers.stop_signal import StopSignal
from tests.patience import PATIENCE_S


def test_each_kind_has_a_limit_of_workers():
    """A processor each, or one at a time; compactions as many as are asked for."""
    limits = workers_max_of({"ingest": 7, "query": 0}, compactions=3)

    assert limits.keys() == set(KIND_NAMES)
    assert (limits["ingest"], limits["query"], limits["compaction"]) == (7, 0, 3)
    assert (limits["commit"], limits["bulk-import"]) == (1, 1)
    assert workers_max_of({}, 1)["ingest"] == os.cpu_count()
    assert workers_max_of({"compaction": 0}, 3)["compaction"] == 0


@pytest.mark.parametrize("kind", ["ingest", "compaction"])
def test_a_worker_is_started_with_its_instance_and_ends_with_its_parent(tmp_path, kind):
    """Its lines come to whoever started it; those of queues stay a while when they have no job."""
    lines, written = [], threading.Event()
    program = (sys.executable, "-c", "import sys; print(*sys.argv[1:], 'end')")
    instance = sleeper.connect(tmp_path / "instance", create=True)

    def write_line(line):
        lines.append(line)
        written.set()

    assert WorkerCommand(program, write_line).start(instance, kind).wait() == 0

    assert written.wait(PATIENCE_S)
    [line] = lines
    begin = f"worker {kind} --instance {instance.url} --parent {os.getpid()}"
    idle_s = instance.properties.ingest_queue.wait_s
    assert line == f"{begin} {'--until-empty' if kind == 'compaction' else f'--idle {idle_s}'} end"


def test_one_round_runs_no_job_and_returns_what_was_done(tmp_path):
    """Given files in a table and a job in a queue, then the files alone are worked on."""
    instance = sleeper.connect(tmp_path / "instance", create=True)
    table = instance.create_table("t", pa.schema([("id", pa.int64())]), row_keys=["id"])
    table.set_properties({"sleeper.table.compaction.strategy.class": "BasicCompactionStrategy"})
    table.set_properties({"sleeper.table.compaction.files.batch.size": 2})
    for number in range(2):
        table.ingest([{"id": number}])
    instance.jobs.send_message("ingest", "no job")
    settings = ServeSettings(every_s=60, once=True, workers_max=workers_max_of({}, 1))
    stop = StopSignal()

    steps = run_serve(lambda: instance, settings, stop, WorkerCommand(("false",), print))

    assert [(step.verb, step.done) for step in steps] == [("compact", "2 files became 1")]
    assert instance.jobs.queue_depths()["ingest"].ready == 1
    assert stop.is_set()


def test_compactions_are_left_to_workers_elsewhere_and_counted(tmp_path):
    """Given files in a table and a job of another that is claimed, then none is compacted here."""
    instance = sleeper.connect(tmp_path / "instance", create=True)
    table = instance.create_table("t", pa.schema([("id", pa.int64())]), row_keys=["id"])
    table.set_properties({"sleeper.table.compaction.strategy.class": "BasicCompactionStrategy"})
    table.set_properties({"sleeper.table.compaction.files.batch.size": 2})
    for number in range(4):
        table.ingest([{"id": number}])
    names = tuple(sorted(each.filename for each in table.references()))[:2]
    claim = Claim(job_id="elsewhere", partition_id="root", filenames=names)
    owner = ClaimOwner(host="elsewhere", pid=4711, worker_id="w-1")
    table._current().store.commit(ClaimFiles(assignments=(claim,), owner=owner))
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    settings = ServeSettings(
        every_s=60,
        only_tables=True,
        workers_max=workers_max_of({}, 1),
        metrics_address=("127.0.0.1", port),
        leaves_compactions=True,
    )
    stop = StopSignal()
    serves = threading.Thread(
        target=run_serve, args=(lambda: instance, settings, stop, WorkerCommand(("false",), print))
    )
    serves.start()
    try:
        counted = figure_of(port, "sleeper_compaction_jobs")
    finally:
        stop.set()
        serves.join(timeout=PATIENCE_S)

    assert counted == "2"
    assert instance.table("t").report_files().files == 4


def figure_of(port, name):
    """Ask until a metric has a figure."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        with (
            suppress(OSError),
            urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_S) as answer,
        ):
            for line in answer.read().decode().splitlines():
                if line.startswith(f"{name}{{"):
                    return line.rpartition(" ")[2]
        time.sleep(0.05)
    return None


def test_after_three_rounds_without_an_instance_serve_ends_and_says_so(tmp_path, caplog):
    """Given a folder that was moved away, then the failure of the last round is returned."""
    instance = sleeper.connect(tmp_path / "instance", create=True)
    (tmp_path / "instance").rename(tmp_path / "away")
    settings = ServeSettings(every_s=0.01, only_tables=True, workers_max=workers_max_of({}, 1))
    stop = StopSignal()

    [step] = run_serve(lambda: instance, settings, stop, WorkerCommand(("false",), print))

    [failure] = step.failures
    assert "is no longer at" in failure
    assert stop.is_set()
    assert caplog.text.count("list tables failed") == 3
    assert "the instance was gone in 3 rounds: ending" in caplog.text
    assert not (tmp_path / "instance").exists()
