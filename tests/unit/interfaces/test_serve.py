"""`sleeper serve --only-tables`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import sleeper as sleeper_package
from sleeper.storage.local.folder import FolderObjects
from tests.unit.interfaces.command_line import ROWS, make_trips, sleeper, write_rows

LONG_AGO_S = 1_000_000_000
MAIN = "from sleeper.interfaces.cli.main import main; main()"
ROUND = ("serve", "--only-tables", "--once")


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
    assert done.stdout.splitlines() == [
        "trips: 10 files became 2",
        "trips: merged 1 pair of leaf partitions",
        "trips: deleted 1 file that killed jobs left",
    ]
    assert again.stdout == ""
    assert next_day.stdout == "trips: deleted 10 files\n"


def test_tables_that_are_offline_are_left_alone(url):
    """TBL-6: nobody touches them in the background."""
    assert sleeper("table", "offline", "trips", "--instance", url).exit_code == 0

    assert sleeper(*ROUND, "--instance", url).stdout == ""
    assert len(sleeper_package.connect(url).table("trips").references()) == 10


def test_a_job_that_fails_is_told(url):
    """The damaged file is named; the other leaf is compacted all the same."""
    table = sleeper_package.connect(url).table("trips")
    bad = Path(table._current().files.url(table.references()[0].filename))
    bad.write_bytes(bad.read_bytes()[:-20] + b"x" * 20)

    told = sleeper(*ROUND, "--json", "--instance", url)

    assert bad.name in told.stdout
    assert "5 files became 1" in told.stdout


def test_it_must_be_said_what_to_serve(url):
    """Nothing else can be served yet."""
    refused = sleeper("serve", "--instance", url)

    assert refused.exit_code == 2
    assert "--only-tables" in refused.output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_it_ends_when_it_is_asked_to(url, number):
    """It rests between two rounds; asked to stop, it ends at once and well."""
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, "serve", "--only-tables", "--instance", url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    for line in process.stdout:
        if "killed jobs" in line:
            break

    process.send_signal(number)
    _, errors = process.communicate(timeout=120)

    assert (process.returncode, errors) == (0, "")
