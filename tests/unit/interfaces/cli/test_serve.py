"""`sleeper serve`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import sleeper as sleeper_package
from sleeper.errors import StorageFailed
from sleeper.storage.local.folder import FolderObjects
from tests.patience import PATIENCE_S
from tests.unit.interfaces.command_line import ROWS, make_trips, sleeper, write_rows

LONG_AGO_S = 1_000_000_000
MAIN = "from sleeper.interfaces.cli.main import main; main()"
ROUND = ("serve", "--once")


@pytest.fixture
def url(tmp_path):
    """The table `trips` with five files in each of its two leaves, and a killed job's file."""
    url = make_trips(tmp_path)
    for number in range(4):
        more = write_rows(tmp_path / f"{number}.parquet", ROWS)
        assert sleeper("ingest", "trips", more, "--instance", url).exit_code == 0
    table = sleeper_package.connect(url).table("trips")
    files = table._current().files
    files.put("data/partition_x/killed.parquet", b"half a file")
    os.utime(files.url("data/partition_x/killed.parquet"), (LONG_AGO_S, LONG_AGO_S))
    table.set_properties({"sleeper.table.partition.merging.threshold": "1000"})
    return url


def test_one_round_does_all_that_is_to_do(url, monkeypatch):
    """Files are merged, leaves too, and what is left over is deleted; then it ends."""
    done = sleeper(*ROUND, "--instance", url)
    again = sleeper(*ROUND, "--instance", url)
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    monkeypatch.setattr(FolderObjects, "storage_time", lambda _: tomorrow)
    next_day = sleeper(*ROUND, "--instance", url)

    assert done.exit_code == 0, done.output
    times, lines = zip(*(line.split(" ", 1) for line in done.stderr.splitlines()), strict=True)
    assert all(datetime.fromisoformat(time).tzinfo for time in times)
    assert [line for line in lines if "trips:" in line] == [
        "INFO    trips: 10 files became 2",
        "INFO    trips: merged 1 pair of leaf partitions",
        "INFO    trips: deleted 1 file that killed jobs left",
    ]
    assert (done.stdout, again.output) == ("", "")
    assert "INFO    trips: deleted 10 files\n" in next_day.stderr


def test_tables_that_are_offline_are_left_alone(url):
    """TBL-6: nobody touches them in the background."""
    assert sleeper("table", "offline", "trips", "--instance", url).exit_code == 0

    assert sleeper(*ROUND, "--instance", url).output == ""
    assert len(sleeper_package.connect(url).table("trips").references()) == 10


def test_a_job_that_fails_is_told(url):
    """The damaged file is named; the other leaf is compacted all the same."""
    table = sleeper_package.connect(url).table("trips")
    bad = Path(table._current().files.url(table.references()[0].filename))
    bad.write_bytes(bad.read_bytes()[:-20] + b"x" * 20)

    told = sleeper(*ROUND, "--json", "--instance", url)
    steps = json.loads(told.stdout)

    assert told.exit_code == 1
    assert bad.name in steps[0]["failures"][0]
    assert steps[0]["done"] == "5 files became 1"
    assert f"trips: compact failed: {steps[0]['failures'][0]}" in told.stderr


def test_a_file_that_cannot_be_deleted_is_named(url, monkeypatch):
    """Its name is in the log and in the JSON, and the exit code is 1."""
    assert sleeper("compact", "trips", "--instance", url).exit_code == 0
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    monkeypatch.setattr(FolderObjects, "storage_time", lambda _: tomorrow)
    name = sleeper_package.connect(url).table("trips").garbage()[0]
    delete = FolderObjects.delete

    def refuse_one(self, keys):
        keys = [*keys]
        if name in keys:
            raise StorageFailed("permission denied")
        delete(self, keys)

    monkeypatch.setattr(FolderObjects, "delete", refuse_one)

    told = sleeper(*ROUND, "--json", "--instance", url)

    assert told.exit_code == 1
    (collected,) = (step for step in json.loads(told.stdout) if step["verb"] == "gc")
    assert collected["done"] == "deleted 9 files"
    assert collected["failures"] == [f"{name} could not be deleted: permission denied"]
    assert f"ERROR   trips: gc failed: {name}" in told.stderr


def test_log_lines_can_be_json(url):
    """One object a line, with the time, the level and the module that says it."""
    told = sleeper("--log-format", "json", *ROUND, "--instance", url)

    lines = [json.loads(line) for line in told.stderr.splitlines()]
    compacted = next(line for line in lines if line["message"] == "trips: 10 files became 2")
    assert compacted["level"] == "INFO"
    assert compacted["logger"] == "sleeper.workers.maintenance"
    assert datetime.fromisoformat(compacted["time"]).tzinfo


def test_json_is_one_document_and_so_needs_an_end(url):
    """A loop without an end has its log."""
    refused = sleeper("serve", "--json", "--instance", url)

    assert refused.exit_code == 2
    assert "--json goes with --once" in refused.output


def test_metrics_are_answered_while_it_runs(url):
    """One round ends before anybody could ask."""
    refused = sleeper("serve", "--once", "--metrics", "127.0.0.1:0", "--instance", url)

    assert refused.exit_code == 2
    assert "--once ends at once" in refused.output


def test_scripts_of_before_go_on(url):
    """`--only-tables` had to be given once."""
    assert sleeper("serve", "--only-tables", "--once", "--instance", url).exit_code == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_it_ends_when_it_is_asked_to(url, number):
    """It rests between two rounds; asked to stop, it ends at once and well."""
    process = subprocess.Popen(
        [*(sys.executable, "-c", MAIN, "serve", "--instance", url), "--job-workers=compaction=0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    for line in process.stderr:
        if "killed jobs" in line:
            break

    process.send_signal(number)
    output, errors = process.communicate(timeout=PATIENCE_S)

    assert (process.returncode, output) == (0, "")
    told = [line.partition(" ")[2] for line in errors.splitlines()]
    assert told == ["INFO    asked to end: ending all processes"]
